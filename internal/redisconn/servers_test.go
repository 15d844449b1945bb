package redisconn

import (
	"context"
	"testing"
	"time"

	"github.com/distlock/locker/conformance/faultproxy"
	"github.com/distlock/locker/internal/bound"
	"github.com/stretchr/testify/require"
)

// A message to a server that does not answer is waited for no longer than its sender has time.
func TestPublishEndsInTime(t *testing.T) {
	t.Parallel()
	for _, silent := range []string{"PUBLISH", "SPUBLISH"} {
		t.Run(silent, func(t *testing.T) {
			t.Parallel()
			l := newProxied(t, false)
			l.proxy.HangReply(faultproxy.MatchCommand(silent), 0)
			for name, end := range map[string]func() (context.Context, func()){
				"deadline": func() (context.Context, func()) {
					ctx := bound.New(t.Context(), 50*time.Millisecond, nil)
					return ctx, ctx.Stop
				},
				"cancelled": func() (context.Context, func()) {
					ctx, cancel := context.WithCancel(t.Context())
					time.AfterFunc(50*time.Millisecond, cancel)
					return bound.New(ctx, time.Minute, nil), cancel
				},
			} {
				ctx, stop := end()
				began := time.Now()
				require.Error(t, l.Publish(ctx, "c", "m", silent == "SPUBLISH"), name)
				require.Less(t, time.Since(began), controlTimeout/2, name)
				stop()
			}
		})
	}
}

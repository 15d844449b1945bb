package redisconn

import (
	"context"
	"testing"
	"time"

	"github.com/distlock/locker/conformance/faultproxy"
	"github.com/distlock/locker/internal/bound"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// A server that does not answer is waited for no longer than the caller has time.
func TestCommandsOfGoRedisEndInTime(t *testing.T) {
	t.Parallel()
	for silent, send := range map[string]func(context.Context, *Conn) error{
		"PUBLISH":  func(ctx context.Context, c *Conn) error { return c.Publish(ctx, "c", "m", false) },
		"SPUBLISH": func(ctx context.Context, c *Conn) error { return c.Publish(ctx, "c", "m", true) },
		"INFO": func(ctx context.Context, c *Conn) error {
			_, err := c.Info(ctx, "server")
			return err
		},
		"CONFIG": func(ctx context.Context, c *Conn) error {
			_, err := c.Setting(ctx, c.private.(*redis.Client), "save")
			return err
		},
		"SCAN": func(ctx context.Context, c *Conn) error {
			for _, err := range c.Scan(ctx, "*") {
				return err
			}
			return nil
		},
	} {
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
				require.Error(t, send(ctx, l.Conn), name)
				require.Less(t, time.Since(began), controlTimeout/2, name)
				stop()
			}
		})
	}
}

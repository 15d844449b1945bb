package redisdriver

import (
	"context"
	"testing"
	"time"

	"github.com/distlock/locker/driver"
	"github.com/stretchr/testify/require"
)

// A Break whose answer does not come holds up none of another key.
func TestBreakOfAnotherKeyDoesNotWait(t *testing.T) {
	t.Parallel()
	p := newProxied(t, false)
	rule := p.abandons(t, func(ctx context.Context) error { return p.Break(ctx, driver.Holder{Key: "hung", ID: "a"}) })
	defer p.settled(t)
	defer rule.Stop()
	start := time.Now()
	require.ErrorIs(t, p.Break(t.Context(), driver.Holder{Key: "k", ID: "b"}), driver.ErrLost)
	require.Less(t, time.Since(start), commandTimeout, "the other is waited for until then")
}

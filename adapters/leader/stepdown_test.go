package leader_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/distlock/locker/adapters/leader"
	"github.com/distlock/locker/strategy/memory"
)

// A leader that is asked to step down does so when it is ready, and another candidate leads.
func TestStepDown(t *testing.T) {
	s := memory.NewStore()
	var leads atomic.Int32 // which candidate
	var terms atomic.Int32
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 2)
	for i := range int32(2) {
		l, err := s.New()
		require.NoError(t, err)
		defer l.Close()
		go func() {
			ended <- leader.Run(ctx, l, "k", func(ctx context.Context, _ int64) error {
				asked := leader.StepDownRequested(ctx)
				leads.Store(i + 1)
				terms.Add(1)
				select {
				case <-asked:
					return leader.ErrSteppedDown
				case <-ctx.Done():
					return ctx.Err()
				}
			})
		}()
	}
	operator, err := s.New()
	require.NoError(t, err)
	defer operator.Close()
	require.Eventually(t, func() bool { return terms.Load() == 1 }, 10*time.Second, time.Millisecond)
	first := leads.Load()
	require.NoError(t, operator.RequestRelease(t.Context(), "k"))
	require.Eventually(t, func() bool { return terms.Load() == 2 }, 10*time.Second, time.Millisecond)
	require.NotEqual(t, first, leads.Load(), "the one that stepped down pauses")
	stop()
	for range 2 {
		require.ErrorIs(t, <-ended, context.Canceled)
	}
	require.Nil(t, leader.StepDownRequested(t.Context()), "no leader's context")
}

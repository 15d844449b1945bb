package leader_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/distlock/locker"
	"github.com/distlock/locker/adapters/leader"
	"github.com/distlock/locker/strategy/memory"
)

// A function that does not heed the loss makes the process unhealthy, and nothing else does.
func TestHealthy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		deaf := make(chan struct{})
		c := stand(t, t.Context(), newLocker(t, store), func(context.Context, int64) error {
			<-deaf
			return nil
		}, leader.WithLockOptions(locker.WithTTL(3*time.Second)))
		require.NoError(t, c.Healthy(0))
		time.Sleep(time.Hour + 500*time.Millisecond) // between two renewals
		require.NoError(t, c.Healthy(0))
		require.True(t, store.Break(key))
		time.Sleep(time.Second) // the next renewal shows it
		lost := time.Now()
		require.False(t, c.IsLeader())
		time.Sleep(10 * time.Second) // on the bubble's clock
		require.NoError(t, c.Healthy(time.Since(lost)+time.Second))
		require.ErrorIs(t, c.Healthy(time.Since(lost)-time.Second), locker.ErrLost)
		close(deaf)
		synctest.Wait()
		require.NoError(t, c.Healthy(0))
	})
}

// So does one that lingers after the end of Run's context: the loss that comes then counts from when it came.
func TestHealthyAfterTheEndOfTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		lingers := make(chan struct{})
		ctx, stop := context.WithCancel(t.Context())
		c := stand(t, ctx, newLocker(t, store), func(context.Context, int64) error {
			<-lingers
			return nil
		})
		synctest.Wait()
		stop()
		time.Sleep(time.Hour) // on the bubble's clock: the lock is renewed
		require.NoError(t, c.Healthy(0))
		require.True(t, store.Break(key))
		time.Sleep(11 * time.Second) // longer than it takes to the next renewal, which shows it
		require.False(t, c.IsLeader())
		require.NoError(t, c.Healthy(11*time.Second))
		require.ErrorIs(t, c.Healthy(0), locker.ErrLost)
		close(lingers)
		require.ErrorIs(t, <-c.ended, context.Canceled)
	})
}

// A candidate that was stopped is unhealthy since its deadline, though it noticed the loss only now.
func TestHealthyAfterAStop(t *testing.T) {
	l := newLocker(t, memory.NewStore())
	var e *leader.Elector
	e, err := leader.New(l, key, leader.WithLockOptions(locker.WithTTL(100*time.Millisecond), locker.WithoutRenewal()), leader.WithMinTerm(10*time.Millisecond))
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	require.ErrorIs(t, e.Run(ctx, func(ctx context.Context, _ int64) error {
		lease, ok := locker.LeaseFromContext(ctx)
		require.True(t, ok)
		time.Sleep(time.Until(lease.Deadline()) + 50*time.Millisecond) // the process stands still for so long
		require.ErrorIs(t, e.Healthy(40*time.Millisecond), locker.ErrLost)
		require.NoError(t, e.Healthy(time.Minute))
		stop()
		return nil
	}), context.Canceled)
}

func TestStats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		long := time.Minute
		c := stand(t, t.Context(), newLocker(t, store), func(ctx context.Context, _ int64) error {
			select {
			case <-time.After(long):
				return leader.ErrSteppedDown
			case <-ctx.Done():
				return nil
			}
		}, leader.WithBackoff(time.Second, time.Second))
		time.Sleep(10 * time.Second) // on the bubble's clock
		require.Equal(t, leader.Stats{Leads: true, Terms: 1, Led: 10 * time.Second}, c.Stats())
		time.Sleep(long) // the second term
		require.True(t, store.Break(key))
		time.Sleep(long / 2) // on the bubble's clock: in the third term
		st := c.Stats()
		require.Equal(t, leader.Stats{Leads: true, Terms: 3, Lost: 1}, leader.Stats{Leads: st.Leads, Terms: st.Terms, Lost: st.Lost, Failed: st.Failed})
		require.Greater(t, st.Led, long)
		require.Less(t, st.Led, 100*time.Second)
	})
}

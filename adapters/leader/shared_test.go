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

// Two candidates share the leadership by a named owner. The one whose function returns
// first after a loss waits for the other to give the lost leadership back, and leads again.
func TestLossOfASharedLeadership(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		l := newLocker(t, store, locker.WithTTL(300*time.Millisecond))
		ctx, stop := context.WithCancel(locker.ContextWithOwner(t.Context(), "team"))
		seen, slowly, soon := new(terms), new(terms), leader.WithBackoff(10*time.Millisecond, 20*time.Millisecond)
		quick := stand(t, ctx, l, untilEnd, soon, leader.WithObserver(seen.observe))
		slow := stand(t, ctx, l, func(ctx context.Context, _ int64) error {
			<-ctx.Done()
			time.Sleep(time.Second) // it rolls back
			return nil
		}, soon, leader.WithObserver(slowly.observe))
		time.Sleep(200 * time.Millisecond) // on the bubble's clock: both are elected
		require.True(t, quick.IsLeader() && slow.IsLeader())
		require.Equal(t, quick.Token(), slow.Token())
		require.Equal(t, []leader.Event{{Kind: leader.Elected, Token: quick.Token()}}, seen.seen)
		require.Equal(t, seen.seen, slowly.seen, "each has its own events")
		require.True(t, store.Break(key))
		time.Sleep(900 * time.Millisecond) // on the bubble's clock: the other one still rolls back
		require.Empty(t, quick.ended, "it is to stand again")
		kinds := seen.kinds()
		require.Equal(t, []leader.Kind{leader.Elected, leader.Ended, leader.Failed}, kinds[:3])
		require.Equal(t, leader.Failed, kinds[len(kinds)-1])
		require.Equal(t, []leader.Kind{leader.Elected}, slowly.kinds(), "its function has not returned")
		time.Sleep(1100 * time.Millisecond) // on the bubble's clock: it has rolled back, and the pauses are over
		require.True(t, quick.IsLeader() && slow.IsLeader())
		stop()
		require.ErrorIs(t, <-quick.ended, context.Canceled)
		require.ErrorIs(t, <-slow.ended, context.Canceled)
	})
}

// Run under a lease on the key that is lost can never succeed.
func TestRunUnderALostLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLocker(t, memory.NewStore())
		lease, err := l.Lock(t.Context(), key, locker.WithMaxHold(time.Second))
		require.NoError(t, err)
		ctx := context.WithoutCancel(lease.Context(t.Context())) // which does not end with the lease
		time.Sleep(2 * time.Second)                              // on the bubble's clock: longer than the hold
		require.ErrorIs(t, <-stand(t, ctx, l, untilEnd).ended, locker.ErrLost)
	})
}

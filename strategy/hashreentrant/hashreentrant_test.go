package hashreentrant_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/internal/redisdriver"
	"github.com/distlock/locker/internal/test/redistest"
	"github.com/distlock/locker/strategy/hashreentrant"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

const soon = 10 * time.Second

// newLocker makes what another process would have.
func newLocker(t *testing.T, rdb redis.UniversalClient, opts ...locker.Option) locker.Locker {
	t.Helper()
	l, err := hashreentrant.New(rdb, opts...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.Close()) })
	return l
}

func mustLock(t *testing.T, ctx context.Context, l locker.Locker, key string, opts ...locker.LockOption) *locker.Lease {
	t.Helper()
	lease, err := l.Lock(ctx, key, append(opts, locker.WithWait(soon))...)
	require.NoError(t, err, "Lock of %q", key)
	return lease
}

// Two leases of one claim that are unlocked at once both go: the count and the
// release reach Redis in order.
func TestConcurrentUnlockOfTwoLeases(t *testing.T) {
	rdb := redistest.Start(t).Client(t)
	l := newLocker(t, rdb)
	for range 100 {
		outer := mustLock(t, t.Context(), l, "k")
		inner := mustLock(t, outer.Context(t.Context()), l, "k")
		var both sync.WaitGroup
		for name, lease := range map[string]*locker.Lease{"outer": outer, "inner": inner} {
			both.Go(func() {
				if err := lease.Unlock(t.Context()); err != nil {
					t.Errorf("%s Unlock: %v, want nil: nothing was lost", name, err)
				}
			})
		}
		both.Wait()
		require.Zero(t, rdb.Exists(t.Context(), "k").Val(), "both holds were given back")
	}
}

// An owner who holds the key in another process re-enters here, though others
// wait for it here, and does not wait for itself behind them.
func TestOwnerBehindALocalQueueReenters(t *testing.T) {
	rdb := redistest.Start(t).Client(t)
	elsewhere, here := newLocker(t, rdb), newLocker(t, rdb)
	ann := locker.ContextWithOwner(t.Context(), "ann")
	held := mustLock(t, ann, elsewhere, "k")

	ctx, cancel := context.WithCancel(t.Context())
	bob := make(chan error)
	go func() {
		_, err := here.Lock(ctx, "k")
		bob <- err
	}()
	require.Eventually(t, func() bool { return len(rdb.PubSubChannels(t.Context(), "*").Val()) == 1 }, soon, time.Millisecond, "bob waits here")

	again := mustLock(t, ann, here, "k")
	require.Equal(t, held.Token(), again.Token())
	require.Equal(t, "2", rdb.HGet(t.Context(), "k", "ann").Val(), "the owner's total")
	require.NoError(t, again.Unlock(ann))
	again, err := here.TryLock(ann, "k")
	require.NoError(t, err)
	require.NoError(t, held.Unlock(ann))
	require.Equal(t, "1", rdb.HGet(t.Context(), "k", "ann").Val(), "the hold of this process is left")
	require.NoError(t, again.Unlock(ann))
	cancel()
	if err := <-bob; err != nil { // or he was faster
		require.ErrorIs(t, err, context.Canceled)
	}
}

// A process that joins a hold gets its token from the hold: the fencing counter may be
// gone.
func TestTokenOfAJoiningProcess(t *testing.T) {
	rdb := redistest.Start(t).Client(t)
	first, second := newLocker(t, rdb), newLocker(t, rdb)
	fence := redisdriver.FenceKey("k")
	ann := locker.ContextWithOwner(t.Context(), "ann")
	held := mustLock(t, ann, first, "k")
	for range 2 {
		require.EqualValues(t, 1, rdb.Del(t.Context(), fence).Val())
		joined := mustLock(t, ann, second, "k")
		require.Equal(t, held.Token(), joined.Token(), "re-entry keeps the token")
		require.NoError(t, held.Unlock(ann))
		held = joined
		first, second = second, first

		require.NoError(t, rdb.Set(t.Context(), fence, 1, time.Minute).Err())
	}
	require.NoError(t, held.Unlock(ann))
	next := mustLock(t, ann, second, "k")
	require.Greater(t, next.Token(), held.Token())
	require.NoError(t, next.Unlock(ann))
}

// A counter that is ahead of the clock is kept until the clock has caught up.
func TestCounterAheadOfTheClockIsKept(t *testing.T) {
	rdb := redistest.Start(t).Client(t)
	l, fence := newLocker(t, rdb), redisdriver.FenceKey("k")
	ahead := time.Now().Add(24 * time.Hour).UnixMicro()
	require.NoError(t, rdb.Set(t.Context(), fence, ahead, time.Minute).Err())
	lease := mustLock(t, t.Context(), l, "k")
	require.Equal(t, ahead+1, lease.Token())
	require.Greater(t, rdb.PTTL(t.Context(), fence).Val(), 24*time.Hour)
	require.NoError(t, lease.Unlock(t.Context()))
}

// An Unlock beside Close is never refused: it frees the key by one client or the
// other.
func TestUnlockBesideClose(t *testing.T) {
	rdb := redistest.Start(t).Client(t)
	for i := range 100 {
		l, err := hashreentrant.New(rdb)
		require.NoError(t, err)
		lease := mustLock(t, t.Context(), l, "k")
		var both sync.WaitGroup
		both.Go(func() {
			if err := l.Close(); err != nil {
				t.Errorf("round %d: Close: %v, want nil", i, err)
			}
		})
		both.Go(func() {
			if err := lease.Unlock(t.Context()); err != nil {
				t.Errorf("round %d: Unlock: %v, want nil", i, err)
			}
		})
		both.Wait()
		require.Zero(t, rdb.Exists(t.Context(), "k").Val(), "Unlock frees the key, before Close or after")
	}
}

// On a cluster that does not answer, Unlocks with a dead context take 5 s in all,
// not 5 s after one another.
func TestUnlocksOnASilentCluster(t *testing.T) {
	srv := redistest.StartClusterOfOne(t)
	rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{srv.Addr()}})
	defer rdb.Close()
	l := newLocker(t, rdb)
	var leases []*locker.Lease
	for _, key := range []string{"a", "b", "c", "d", "e", "f"} {
		leases = append(leases, mustLock(t, t.Context(), l, key))
	}

	srv.Pause()
	defer srv.Resume()
	dead, cancel := context.WithCancel(t.Context())
	cancel()
	start := time.Now()
	var all sync.WaitGroup
	for _, lease := range leases {
		all.Go(func() {
			if err := lease.Unlock(dead); err == nil {
				t.Error("Unlock: nil, want an error: the cluster is silent")
			}
		})
	}
	all.Wait()
	require.Less(t, time.Since(start), 6*time.Second, "a dead context gives an Unlock 5s")
}

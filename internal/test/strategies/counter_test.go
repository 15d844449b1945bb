package strategies

import (
	"testing"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/internal/redisdriver"
	"github.com/distlock/locker/internal/test/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// onSettableClocks runs a test on a server of its own with each strategy on one Redis, for
// callers without a name and with one.
func onSettableClocks(t *testing.T, test func(t *testing.T, srv *redistest.Server, l locker.Locker, named func() locker.Locker)) {
	t.Helper()
	for name, newLocker := range onOneRedis {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := redistest.Start(t, redistest.WithSettableClock())
			rdb := srv.Client(t)
			open := func() locker.Locker {
				l, err := newLocker(rdb)
				require.NoError(t, err)
				t.Cleanup(func() { require.NoError(t, l.Close()) })
				return l
			}
			test(t, srv, open(), open)
		})
	}
}

// requireLasts checks how long a key lasts.
func requireLasts(t *testing.T, rdb *redis.Client, key string, least, most time.Duration) {
	t.Helper()
	left := rdb.PTTL(t.Context(), key).Val()
	require.GreaterOrEqual(t, left, least, "the time to live of %s", key)
	require.LessOrEqual(t, left, most, "the time to live of %s", key)
}

const (
	full  = 10 * time.Minute // what a release leaves of a counter at least
	slack = 10 * time.Second // for a busy machine
)

// A leader holds its lock for far longer than a counter is kept, and the server's clock is
// set back then: the next leader's token is greater.
func TestCounterOutlivesALongHold(t *testing.T) {
	onSettableClocks(t, func(t *testing.T, srv *redistest.Server, l locker.Locker, open func() locker.Locker) {
		rdb, ctx := srv.Client(t), t.Context()
		for _, c := range []struct{ key, owner string }{{"unnamed", ""}, {"named", "ann"}} {
			srv.SetClock(t, 0)
			by := ctx
			if c.owner != "" {
				by = locker.ContextWithOwner(ctx, c.owner)
			}
			lease, err := l.Lock(by, c.key)
			require.NoError(t, err)
			for at := time.Duration(0); at < 31*time.Minute; at += 20 * time.Second {
				srv.SetClock(t, at)
				require.NoError(t, lease.Renew(ctx))
			}
			srv.SetClock(t, -5*time.Minute)
			require.NoError(t, lease.Unlock(ctx))
			requireLasts(t, rdb, redisdriver.FenceKey(c.key), full, 50*time.Minute)
			next, err := open().Lock(ctx, c.key)
			require.NoError(t, err)
			require.Greater(t, next.Token(), lease.Token(), "the token of the next holder")
			require.NoError(t, next.Unlock(ctx))
		}
	})
}

// A lock is granted when little is left of the counter of the grant before.
func TestCounterOutlivesTheLockItCounted(t *testing.T) {
	onSettableClocks(t, func(t *testing.T, srv *redistest.Server, l locker.Locker, _ func() locker.Locker) {
		rdb, ctx, fence := srv.Client(t), t.Context(), redisdriver.FenceKey("k")
		at := time.Duration(0)
		for _, ttl := range []time.Duration{time.Second, 5 * time.Minute, 5*time.Minute + time.Millisecond, 20 * time.Minute, 24 * time.Hour} {
			last := int64(0)
			for range 3 {
				lease, err := l.Lock(ctx, "k", locker.WithTTL(ttl))
				require.NoError(t, err)
				require.Greater(t, lease.Token(), last)
				last = lease.Token()
				requireLasts(t, rdb, fence, max(2*ttl, full)+ttl-slack, max(2*ttl, full)+ttl+2*time.Minute)
				require.NoError(t, lease.Unlock(ctx))
				at += rdb.PTTL(ctx, fence).Val() - slack
				srv.SetClock(t, at)
				require.EqualValues(t, 1, rdb.Exists(ctx, fence).Val(), "the counter is there still")
			}
		}
	})
}

// A brief lease is followed by a long one at once.
func TestCounterOutlivesALongerLease(t *testing.T) {
	onSettableClocks(t, func(t *testing.T, srv *redistest.Server, l locker.Locker, open func() locker.Locker) {
		rdb, ctx, fence := srv.Client(t), t.Context(), redisdriver.FenceKey("k")
		for _, ttl := range []time.Duration{100 * time.Millisecond, 5 * time.Minute, time.Hour} {
			lease, err := l.Lock(ctx, "k", locker.WithTTL(ttl))
			require.NoError(t, err)
			require.Greater(t, rdb.PTTL(ctx, fence).Val(), rdb.PTTL(ctx, "k").Val()+5*time.Minute-slack)
			require.NoError(t, lease.Unlock(ctx))
		}
	})
}

// A process joins a hold for longer than the one that took the lock.
func TestCounterOutlivesALongerShare(t *testing.T) {
	onHashes(t, func(t *testing.T, rdb *redis.Client, open func(...locker.Option) locker.Locker) {
		ann := locker.ContextWithOwner(t.Context(), "ann")
		_, err := open().Lock(ann, "k")
		require.NoError(t, err)
		_, err = open().Lock(ann, "k", locker.WithTTL(3*time.Hour), locker.WithoutRenewal())
		require.NoError(t, err)
		requireLasts(t, rdb, redisdriver.FenceKey("k"), 9*time.Hour-slack, 9*time.Hour+2*time.Minute)
	})
}

// Without fencing there is no counter, whatever is done with the lock.
func TestNoCounterWithoutFencing(t *testing.T) {
	for name, newLocker := range onOneRedis {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rdb, ctx := redistest.Start(t).Client(t), t.Context()
			l, err := newLocker(rdb, locker.WithoutFencing())
			require.NoError(t, err)
			defer l.Close()
			for _, by := range []string{"", "ann"} {
				ctx := ctx
				if by != "" {
					ctx = locker.ContextWithOwner(ctx, by)
				}
				lease, err := l.Lock(ctx, "k")
				require.NoError(t, err)
				require.NoError(t, lease.Renew(ctx))
				require.Equal(t, []string{"k"}, rdb.Keys(ctx, "*").Val())
				require.NoError(t, lease.Unlock(ctx))
			}
			require.Empty(t, rdb.Keys(ctx, "*").Val())
		})
	}
}

package strategies

import (
	"context"
	"testing"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/internal/test/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// On a server that is full, what needs no memory goes through, of named owners, too.
func TestFullServer(t *testing.T) {
	for name, newLocker := range onOneRedis {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rdb := redistest.Start(t).Client(t)
			open := func() locker.Locker {
				l, err := newLocker(rdb)
				require.NoError(t, err)
				t.Cleanup(func() { require.NoError(t, l.Close()) })
				return l
			}
			full := func(is bool) {
				memory := "0"
				if is {
					memory = "1"
				}
				require.NoError(t, rdb.ConfigSet(t.Context(), "maxmemory", memory).Err())
			}
			l, other := open(), open()
			for _, owner := range []string{"", "ann"} {
				t.Run("owner "+owner, func(t *testing.T) { fullServer(t, rdb, full, l, owner) })
			}
			t.Run("co-owners", func(t *testing.T) {
				if name == "setnx" {
					t.Skip("a second process with the same owner is excluded")
				}
				fullCoOwners(t, rdb, full, l, other)
			})
		})
	}
}

func fullServer(t *testing.T, rdb *redis.Client, full func(bool), l locker.Locker, owner string) {
	t.Helper()
	full(false)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if owner != "" {
		ctx = locker.ContextWithOwner(ctx, owner)
	}
	lease, err := l.Lock(ctx, "k", locker.WithTTL(time.Minute))
	require.NoError(t, err)
	inner, err := l.Lock(lease.Context(ctx), "k")
	require.NoError(t, err)
	full(true)
	defer full(false)
	_, err = l.TryLock(t.Context(), "free")
	require.ErrorIs(t, err, locker.ErrUnavailable)
	require.ErrorContains(t, err, "OOM")
	require.NoError(t, rdb.PExpire(ctx, "k", 10*time.Second).Err())
	require.NoError(t, lease.Renew(ctx))
	require.Greater(t, rdb.PTTL(ctx, "k").Val(), 30*time.Second)
	again, err := l.Lock(lease.Context(ctx), "k")
	require.NoError(t, err, "re-entry")
	require.NoError(t, again.Unlock(ctx))
	require.NoError(t, inner.Unlock(ctx))
	require.Greater(t, rdb.PTTL(ctx, "k").Val(), 30*time.Second)
	require.EqualValues(t, 1, rdb.Exists(ctx, "k").Val())
	require.NoError(t, lease.Unlock(ctx))
	require.Zero(t, rdb.Exists(ctx, "k").Val())
}

// One of two processes that hold by the same owner's name unlocks, and then the other.
func fullCoOwners(t *testing.T, rdb *redis.Client, full func(bool), l, other locker.Locker) {
	t.Helper()
	full(false)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	ann := locker.ContextWithOwner(ctx, "ann")
	first, err := l.Lock(ann, "k", locker.WithTTL(time.Minute))
	require.NoError(t, err)
	second, err := other.Lock(ann, "k", locker.WithTTL(time.Minute))
	require.NoError(t, err)
	full(true)
	defer full(false)
	require.NoError(t, first.Unlock(ann))
	require.Equal(t, "1", rdb.HGet(t.Context(), "k", "ann").Val())
	require.NoError(t, second.Renew(ann))
	_, err = l.TryLock(ann, "k")
	require.ErrorIs(t, err, locker.ErrUnavailable, "a further process needs memory")
	require.ErrorContains(t, err, "OOM")
	require.Equal(t, "1", rdb.HGet(t.Context(), "k", "ann").Val())
	require.NoError(t, second.Unlock(ann))
	require.Zero(t, rdb.Exists(t.Context(), "k").Val())
}

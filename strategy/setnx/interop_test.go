package setnx_test

import (
	"context"
	"testing"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/internal/test/redistest"
	"github.com/distlock/locker/strategy/setnx"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

func newLocker(t *testing.T, rdb redis.UniversalClient, opts ...locker.Option) locker.Locker {
	t.Helper()
	l, err := setnx.New(rdb, opts...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.Close()) })
	return l
}

func TestExcludesRedsyncAndIsExcluded(t *testing.T) {
	rdb := redistest.Shared(t).Client(t)
	l := newLocker(t, rdb)
	ctx := t.Context()
	key := t.Name()
	mutex := redsync.New(goredis.NewPool(rdb)).NewMutex(key, redsync.WithTries(1), redsync.WithExpiry(time.Minute))

	lease, err := l.Lock(ctx, key)
	require.NoError(t, err)
	require.Error(t, mutex.LockContext(ctx), "redsync must be refused while we hold")
	require.NoError(t, lease.Unlock(ctx))

	require.NoError(t, mutex.LockContext(ctx))
	_, err = l.TryLock(ctx, key)
	require.ErrorIs(t, err, locker.ErrNotAcquired, "we must be refused while redsync holds")
	granted := make(chan *locker.Lease, 1)
	go func() {
		lease, err := l.Lock(ctx, key)
		if err != nil {
			t.Error(err)
		}
		granted <- lease
	}()
	ok, err := mutex.UnlockContext(ctx)
	require.NoError(t, err)
	require.True(t, ok, "redsync's unlock finds its own value untouched")
	lease = <-granted
	require.NotNil(t, lease)
	require.NoError(t, lease.Unlock(ctx))
}

func TestExcludesPlainClientsAndIsExcluded(t *testing.T) {
	rdb := redistest.Shared(t).Client(t)
	l := newLocker(t, rdb)
	ctx := t.Context()
	key := t.Name()
	compareAndDelete := redis.NewScript(`if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("del", KEYS[1]) else return 0 end`)

	lease, err := l.Lock(ctx, key)
	require.NoError(t, err)
	ok, err := rdb.SetNX(ctx, key, "me", time.Minute).Result()
	require.NoError(t, err)
	require.False(t, ok, "SET NX must fail while we hold")
	n, err := compareAndDelete.Run(ctx, rdb, []string{key}, "me").Int()
	require.NoError(t, err)
	require.Zero(t, n)
	value, err := rdb.Get(ctx, key).Result()
	require.NoError(t, err, "the lock is a string")
	require.Equal(t, lease.Owner(), value, "whose value names the grant")
	require.NoError(t, lease.Unlock(ctx))

	ok, err = rdb.SetNX(ctx, key, "me", time.Minute).Result()
	require.NoError(t, err)
	require.True(t, ok)
	_, err = l.TryLock(ctx, key)
	require.ErrorIs(t, err, locker.ErrNotAcquired)
	n, err = compareAndDelete.Run(ctx, rdb, []string{key}, "me").Int()
	require.NoError(t, err)
	require.Equal(t, 1, n, "the plain holder finds its own value untouched")
	lease, err = l.TryLock(ctx, key)
	require.NoError(t, err)
	require.NoError(t, lease.Unlock(context.Background()))
}

func TestNilClientIsRefused(t *testing.T) {
	var typed *redis.Client
	for _, rdb := range []redis.UniversalClient{nil, typed} {
		_, err := setnx.New(rdb)
		require.ErrorIs(t, err, locker.ErrInvalid)
	}
}

func TestUnknownDriverOptionIsRefused(t *testing.T) {
	_, err := setnx.New(redistest.Shared(t).Client(t), locker.WithDriverOption(struct{}{}))
	require.ErrorIs(t, err, locker.ErrInvalid)
}

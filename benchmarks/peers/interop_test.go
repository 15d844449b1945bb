package main

import (
	"testing"
	"time"

	"github.com/bsm/redislock"
	"github.com/distlock/locker"
	"github.com/distlock/locker/internal/test/redistest"
	"github.com/distlock/locker/strategy/blpop"
	"github.com/distlock/locker/strategy/hashreentrant"
	"github.com/distlock/locker/strategy/setnx"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
	"github.com/stretchr/testify/require"
)

// TestPairsExclude is the table of docs/migrating.md: during a roll-out the old library and
// a strategy exclude each other at the same key.
func TestPairsExclude(t *testing.T) {
	server := redistest.Start(t)
	rdb := server.Client(t)
	rueidis, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption: rueidis.ClientOption{InitAddress: []string{server.Addr()}},
		KeyMajority:  1, NoLoopTracking: true, TryNextAfter: time.Second,
	})
	require.NoError(t, err)
	defer rueidis.Close()
	for name, newLocker := range map[string]func(redis.UniversalClient, ...locker.Option) (*locker.Client, error){
		"setnx": setnx.New, "hashreentrant": hashreentrant.New, "blpop": blpop.New,
	} {
		t.Run(name, func(t *testing.T) {
			ctx := t.Context()
			l, err := newLocker(rdb)
			require.NoError(t, err)
			defer l.Close()
			prefixed, err := newLocker(rdb, locker.WithPrefix("rueidislock:0:"))
			require.NoError(t, err)
			defer prefixed.Close()
			key := "k-" + name
			mutex := redsync.New(goredis.NewPool(rdb)).NewMutex(key, redsync.WithTries(1))

			lease, err := l.Lock(ctx, key)
			require.NoError(t, err)
			_, err = redislock.New(rdb).Obtain(ctx, key, time.Minute, nil)
			if name == "setnx" {
				require.ErrorIs(t, err, redislock.ErrNotObtained)
			} else {
				require.ErrorContains(t, err, "WRONGTYPE")
			}
			require.Error(t, mutex.LockContext(ctx))
			require.NoError(t, lease.Unlock(ctx), "it was left alone")
			lease, err = prefixed.Lock(ctx, key)
			require.NoError(t, err)
			_, _, err = rueidis.TryWithContext(ctx, key)
			if name == "setnx" {
				require.ErrorIs(t, err, rueidislock.ErrNotLocked)
			} else {
				require.ErrorContains(t, err, "WRONGTYPE")
			}
			require.NoError(t, lease.Unlock(ctx), "it was left alone")

			key += " of theirs"
			theirs, err := redislock.New(rdb).Obtain(ctx, key, time.Minute, nil)
			require.NoError(t, err)
			_, err = l.TryLock(ctx, key)
			require.ErrorIs(t, err, locker.ErrNotAcquired)
			require.NoError(t, theirs.Release(ctx), "it was left alone")
			mutex = redsync.New(goredis.NewPool(rdb)).NewMutex(key, redsync.WithTries(1))
			require.NoError(t, mutex.LockContext(ctx))
			_, err = l.TryLock(ctx, key)
			require.ErrorIs(t, err, locker.ErrNotAcquired)
			ok, err := mutex.UnlockContext(ctx)
			require.NoError(t, err)
			require.True(t, ok, "it was left alone")
			inside, cancel, err := rueidis.WithContext(ctx, key)
			require.NoError(t, err)
			_, err = prefixed.TryLock(ctx, key)
			require.ErrorIs(t, err, locker.ErrNotAcquired)
			require.NoError(t, inside.Err(), "it was left alone")
			cancel()
			lease, err = prefixed.Lock(ctx, key)
			require.NoError(t, err)
			require.NoError(t, lease.Unlock(ctx))
		})
	}
}

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
			l, err := newLocker(rdb)
			require.NoError(t, err)
			defer l.Close()
			prefixed, err := newLocker(rdb, locker.WithPrefix("rueidislock:0:"))
			require.NoError(t, err)
			defer prefixed.Close()
			p := pairing{name, rdb, l, prefixed, rueidis}
			p.oursExcludes(t)
			p.theirsExcludes(t)
		})
	}
}

// A pairing is one of our strategies on a server that others' locks are on, too.
type pairing struct {
	name        string
	rdb         redis.UniversalClient
	l, prefixed *locker.Client // prefixed has rueidislock's prefix
	rueidis     rueidislock.Locker
}

func (p pairing) oursExcludes(t *testing.T) {
	t.Helper()
	ctx, key := t.Context(), "k-"+p.name
	mutex := redsync.New(goredis.NewPool(p.rdb)).NewMutex(key, redsync.WithTries(1))

	lease, err := p.l.Lock(ctx, key)
	require.NoError(t, err)
	_, err = redislock.New(p.rdb).Obtain(ctx, key, time.Minute, nil)
	if p.name == "setnx" {
		require.ErrorIs(t, err, redislock.ErrNotObtained)
	} else {
		require.ErrorContains(t, err, "WRONGTYPE")
	}
	require.Error(t, mutex.LockContext(ctx))
	require.NoError(t, lease.Unlock(ctx), "it was left alone")
	lease, err = p.prefixed.Lock(ctx, key)
	require.NoError(t, err)
	_, _, err = p.rueidis.TryWithContext(ctx, key)
	if p.name == "setnx" {
		require.ErrorIs(t, err, rueidislock.ErrNotLocked)
	} else {
		require.ErrorContains(t, err, "WRONGTYPE")
	}
	require.NoError(t, lease.Unlock(ctx), "it was left alone")

}

func (p pairing) theirsExcludes(t *testing.T) {
	t.Helper()
	ctx, key := t.Context(), "k-"+p.name+" of theirs"
	theirs, err := redislock.New(p.rdb).Obtain(ctx, key, time.Minute, nil)
	require.NoError(t, err)
	_, err = p.l.TryLock(ctx, key)
	require.ErrorIs(t, err, locker.ErrNotAcquired)
	require.NoError(t, theirs.Release(ctx), "it was left alone")
	mutex := redsync.New(goredis.NewPool(p.rdb)).NewMutex(key, redsync.WithTries(1))
	require.NoError(t, mutex.LockContext(ctx))
	_, err = p.l.TryLock(ctx, key)
	require.ErrorIs(t, err, locker.ErrNotAcquired)
	ok, err := mutex.UnlockContext(ctx)
	require.NoError(t, err)
	require.True(t, ok, "it was left alone")
	inside, cancel, err := p.rueidis.WithContext(ctx, key)
	require.NoError(t, err)
	_, err = p.prefixed.TryLock(ctx, key)
	require.ErrorIs(t, err, locker.ErrNotAcquired)
	require.NoError(t, inside.Err(), "it was left alone")
	cancel()
	lease, err := p.prefixed.Lock(ctx, key)
	require.NoError(t, err)
	require.NoError(t, lease.Unlock(ctx))
}

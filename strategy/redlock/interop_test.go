package redlock

import (
	"testing"
	"time"

	"github.com/distlock/locker"
	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/stretchr/testify/require"
)

// A plain redsync on the same nodes.
func plainRedsync(t *testing.T, m *masters) *redsync.Redsync {
	t.Helper()
	var pools []redsyncredis.Pool
	for _, rdb := range m.clients(t) {
		pools = append(pools, goredis.NewPool(rdb))
	}
	return redsync.New(pools...)
}

func TestExcludesRedsyncAndIsExcluded(t *testing.T) {
	t.Parallel()
	m := startMasters(t, 5)
	l := m.locker(t, locker.WithTTL(time.Minute))
	mutex := plainRedsync(t, m).NewMutex("k", redsync.WithTries(1), redsync.WithExpiry(time.Minute))
	for range 3 {
		lease := lock(t, l, "k")
		require.Error(t, mutex.LockContext(t.Context()), "redsync must be refused while we hold")
		require.NoError(t, lease.Renew(t.Context()), "its clean-up must leave our lock alone")
		unlock(t, lease)
		for i := range m.servers {
			m.free(t, 20*time.Second, i, "k")
		}

		require.NoError(t, mutex.LockContext(t.Context()))
		_, err := l.TryLock(t.Context(), "k")
		require.ErrorIs(t, err, locker.ErrNotAcquired, "we must be refused while redsync holds")
		ok, err := mutex.ExtendContext(t.Context())
		require.NoError(t, err)
		require.True(t, ok, "our clean-up must leave redsync's lock alone")

		granted := make(chan *locker.Lease, 1)
		go func() {
			lease, err := l.Lock(t.Context(), "k")
			if err != nil {
				t.Error(err)
			}
			granted <- lease
		}()
		ok, err = mutex.UnlockContext(t.Context())
		require.NoError(t, err)
		require.True(t, ok, "redsync's Unlock finds its own value untouched")
		lease = <-granted
		require.NotNil(t, lease)
		unlock(t, lease)
		for i := range m.servers {
			m.free(t, 20*time.Second, i, "k")
		}
	}
}

// A key that a plain client holds on a majority is held, whatever the rest says; a
// minority keeps no caller out.
func TestPlainKeysCount(t *testing.T) {
	t.Parallel()
	m := startMasters(t, 5)
	l := m.locker(t)
	for i := range 3 {
		require.NoError(t, m.direct[i].Set(t.Context(), "k", "me", 0).Err())
	}
	_, err := l.TryLock(t.Context(), "k")
	require.ErrorIs(t, err, locker.ErrNotAcquired)
	for i := 3; i < 5; i++ {
		m.free(t, 20*time.Second, i, "k") // of what the others granted
	}
	require.NoError(t, m.direct[0].Del(t.Context(), "k").Err())
	lease, err := l.TryLock(t.Context(), "k")
	require.NoError(t, err)
	unlock(t, lease)
	require.Equal(t, "me", m.holder(t, 1, "k"))
	require.Equal(t, "me", m.holder(t, 2, "k"))
}

func TestConflicts(t *testing.T) {
	t.Parallel()
	m := startMasters(t, 3)
	l := m.locker(t)
	require.NoError(t, m.direct[0].RPush(t.Context(), "k", "x").Err())
	lease, err := l.TryLock(t.Context(), "k")
	require.NoError(t, err, "what one node has at the key denies nobody a majority")
	unlock(t, lease)
	for i := range m.servers {
		m.free(t, 20*time.Second, max(i, 1), "k")
	}
	require.NoError(t, m.direct[1].RPush(t.Context(), "k", "x").Err())
	_, err = l.Lock(t.Context(), "k")
	require.ErrorIs(t, err, locker.ErrConflict)
	require.ErrorContains(t, err, m.proxies[0].Addr())
	n, err := m.direct[0].LLen(t.Context(), "k").Result()
	require.NoError(t, err)
	require.EqualValues(t, 1, n, "what is no lock is left alone")
}

// Something else at the key on one node and two nodes away is an outage that will pass,
// not a conflict.
func TestConflictOnAMinorityIsNoConflict(t *testing.T) {
	t.Parallel()
	m := startMasters(t, 5)
	l, d := m.open(t)
	unlock(t, lock(t, l, "warm-up"))
	require.NoError(t, m.direct[0].RPush(t.Context(), "k", "x").Err())
	unlock(t, lock(t, l, "k"))
	m.proxies[1].Refuse(true)
	m.proxies[2].Refuse(true)
	_, err := l.TryLock(t.Context(), "k")
	require.ErrorIs(t, err, locker.ErrUnavailable)
	require.NotErrorIs(t, err, locker.ErrConflict)
	got := make(chan error, 1)
	go func() {
		lease, err := l.Lock(t.Context(), "k")
		if err == nil {
			err = lease.Unlock(t.Context())
		}
		got <- err
	}()
	eventually(t, "the nodes are known to be away", func() bool { return d.nodes[1].isDown() && d.nodes[2].isDown() })
	m.proxies[1].Refuse(false)
	m.proxies[2].Refuse(false)
	require.NoError(t, <-got, "it waits until a majority is back")
}

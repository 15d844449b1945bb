package memory_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/distlock/locker"
	"github.com/distlock/locker/strategy/memory"
)

func newLocker(t *testing.T, s *memory.Store, opts ...locker.Option) locker.Locker {
	t.Helper()
	l, err := s.New(opts...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.Close()) })
	return l
}

func TestLockersOnOneStoreExcludeEachOther(t *testing.T) {
	s := memory.NewStore()
	l, other := newLocker(t, s), newLocker(t, s)
	owner := locker.ContextWithOwner(t.Context(), "ann")
	lease, err := l.Lock(owner, "k")
	require.NoError(t, err)
	_, err = other.TryLock(owner, "k")
	require.ErrorIs(t, err, locker.ErrNotAcquired)
	require.NoError(t, lease.Unlock(owner))
	require.Empty(t, s.Keys())
}

func TestStoresAreSeparate(t *testing.T) {
	for range 2 {
		l, err := memory.New()
		require.NoError(t, err)
		t.Cleanup(func() { l.Close() })
		_, err = l.TryLock(t.Context(), "k")
		require.NoError(t, err)
	}
}

func TestPrefix(t *testing.T) {
	s := memory.NewStore()
	_, err := newLocker(t, s, locker.WithPrefix("app:")).Lock(t.Context(), "k")
	require.NoError(t, err)
	require.Equal(t, []string{"app:k"}, s.Keys())
}

func TestUnknownDriverOption(t *testing.T) {
	_, err := memory.New(locker.WithDriverOption("nonsense"))
	require.ErrorIs(t, err, locker.ErrInvalid)
}

func TestReleaseWakesWaiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.NewStore()
		l, other := newLocker(t, s), newLocker(t, s)
		lease, err := l.Lock(t.Context(), "k")
		require.NoError(t, err)

		start := time.Now()
		var waited time.Duration
		done := make(chan struct{})
		go func() {
			defer close(done)
			lease, err := other.Lock(t.Context(), "k")
			if err != nil {
				t.Error(err)
				return
			}
			waited = time.Since(start)
			if err := lease.Unlock(t.Context()); err != nil {
				t.Error(err)
			}
		}()

		time.Sleep(time.Minute) // renewal outlives the TTL of 30 s
		require.NoError(t, lease.Unlock(t.Context()))
		<-done
		require.Equal(t, time.Minute, waited)
	})
}

func TestRenewalFindsTheLockBroken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.NewStore()
		lease, err := newLocker(t, s).Lock(t.Context(), "k", locker.WithTTL(3*time.Second))
		require.NoError(t, err)
		ctx := lease.Context(t.Context())

		s.Break("k")
		<-ctx.Done() // at the next renewal, long before the deadline
		require.ErrorIs(t, context.Cause(ctx), locker.ErrLost)
		require.True(t, time.Now().Before(lease.Deadline()))
		require.ErrorIs(t, lease.Unlock(t.Context()), locker.ErrLost)
	})
}

func TestLeaseWithoutRenewalRunsOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLocker(t, memory.NewStore())
		lease, err := l.Lock(t.Context(), "k", locker.WithoutRenewal(), locker.WithTTL(time.Second))
		require.NoError(t, err)
		start := time.Now()
		next, err := l.Lock(t.Context(), "k")
		require.NoError(t, err)
		require.InDelta(t, time.Second, time.Since(start), float64(100*time.Millisecond))
		require.Greater(t, next.Token(), lease.Token())
		<-lease.Lost()
		require.NoError(t, next.Unlock(t.Context()))
	})
}

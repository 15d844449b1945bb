package redisconformance

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/conformance"
	"github.com/distlock/locker/internal/test/redistest"
	"github.com/stretchr/testify/require"
)

// mixedTiming are the bounds of RunMixed.
var mixedTiming = conformance.Timing{TTL: 3 * time.Second, ShortTTL: 400 * time.Millisecond, PollWithin: 4 * time.Second, Patience: 30 * time.Second}

// RunMixed checks that strategies which share a Redis and a key exclude one
// another (R22), that a waiter of one takes over from a holder of another within
// about a second (R15), that none is starved, and that tokens grow across them
// (R21): that a fleet can be moved from one to the other by a rolling deploy.
func RunMixed(t *testing.T, strategies ...Strategy) {
	t.Helper()
	srv := redistest.Start(t)
	open := func(t *testing.T, s Strategy, opts ...locker.Option) locker.Locker {
		t.Helper()
		l, err := s.New(srv.Client(t), opts...)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, l.Close()) })
		return l
	}
	for _, a := range strategies {
		for _, b := range strategies {
			if a.Name == b.Name {
				continue
			}
			t.Run(a.Name+" then "+b.Name, func(t *testing.T) {
				t.Parallel()
				takeOver(t, open(t, a), open(t, b), t.Name())
			})
		}
	}
	t.Run("all at once", func(t *testing.T) {
		t.Parallel()
		var ls []locker.Locker
		for _, s := range strategies {
			ls = append(ls, open(t, s), open(t, s))
		}
		melee(t, ls, t.Name())
	})
}

// takeOver: holder and then waiter.
func takeOver(t *testing.T, holder, waiter locker.Locker, key string) {
	t.Helper()
	ctx := t.Context()
	last := int64(0)
	newer := func(lease *locker.Lease) {
		t.Helper()
		require.Greater(t, lease.Token(), last, "tokens must grow across strategies")
		last = lease.Token()
	}
	// By release, by release after the waiter has settled down, and by expiry.
	for _, end := range []string{"release", "late release", "expiry"} {
		opts := []locker.LockOption{locker.WithTTL(mixedTiming.TTL)}
		if end == "expiry" {
			opts = append(opts, locker.WithTTL(mixedTiming.ShortTTL), locker.WithoutRenewal())
		}
		lease, err := holder.Lock(ctx, key, opts...)
		require.NoError(t, err)
		newer(lease)
		_, err = waiter.TryLock(ctx, key)
		require.ErrorIs(t, err, locker.ErrNotAcquired)

		type result struct {
			lease *locker.Lease
			err   error
			at    time.Time
		}
		got := make(chan result, 1)
		go func() {
			lease, err := waiter.Lock(ctx, key)
			got <- result{lease, err, time.Now()}
		}()
		if end == "late release" {
			time.Sleep(1200 * time.Millisecond) // past its first look after subscribing or blocking: time is the subject
		}
		select {
		case r := <-got:
			if end != "expiry" {
				t.Fatalf("the waiter was let in beside the holder: %v", r.err)
			}
			got <- r
		default:
		}
		free := lease.Deadline().Add(mixedTiming.ShortTTL / 10) // the store keeps it a little longer
		if end != "expiry" {
			free = time.Now()
			require.NoError(t, lease.Unlock(ctx))
		}
		r := <-got
		require.NoError(t, r.err)
		newer(r.lease)
		require.Less(t, r.at.Sub(free), mixedTiming.PollWithin, "a free lock is taken within about a second")
		if end == "expiry" {
			require.ErrorIs(t, lease.Unlock(ctx), locker.ErrLost)
			_, err = holder.TryLock(ctx, key)
			require.ErrorIs(t, err, locker.ErrNotAcquired, "the loser's Unlock must leave the new lock alone")
		}
		require.NoError(t, r.lease.Unlock(ctx))
	}
}

// melee: all contend until each has had a few turns.
func melee(t *testing.T, ls []locker.Locker, key string) {
	t.Helper()
	const turns = 3
	ctx, stop := context.WithTimeout(t.Context(), 3*mixedTiming.Patience)
	defer stop()
	var inside atomic.Int32
	var last int64 // guarded by the lock under test
	var wg sync.WaitGroup
	var hungry atomic.Int32
	hungry.Store(int32(len(ls)))
	for i, l := range ls {
		wg.Go(func() {
			for n := 1; hungry.Load() > 0; n++ {
				lease, err := l.Lock(ctx, key)
				if err != nil {
					t.Errorf("locker %d got %d turns of %d: %v", i, n-1, turns, err)
					return
				}
				if inside.Add(1) != 1 {
					t.Errorf("two holders at once")
				}
				if lease.Token() <= last {
					t.Errorf("token %d after %d", lease.Token(), last)
				}
				last = lease.Token()
				time.Sleep(time.Millisecond) // the section
				inside.Add(-1)
				if err := lease.Unlock(ctx); err != nil && !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("Unlock: %v", err)
				}
				if n == turns {
					hungry.Add(-1)
				}
			}
		})
	}
	wg.Wait()
}

package conformance

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/conformance/internal/suite"
)

var closingCases = group("closing", []Case{
	{Name: "CloseRefusesLocks", Rules: []string{"R24"}, Locker: true, Test: testCloseRefusesLocks,
		Contract: "after Close, Lock and TryLock are ErrClosed, and the key is left as it is"},
	{Name: "CloseEndsWaits", Rules: []string{"R24"}, Locker: true, Test: testCloseEndsWaits,
		Contract: "Close ends waiting Locks with ErrClosed, at once"},
	{Name: "CloseEndsLeases", Rules: []string{"R24"}, Test: testCloseEndsLeases,
		Contract: "on Close held leases are lost for a cause that matches ErrClosed and ErrLost, their keys stay taken, and their own Unlock frees them"},
	{Name: "CloseLeavesKeysToTheTTL", Rules: []string{"R24"}, Test: testCloseLeavesKeysToTheTTL,
		Contract: "keys held at Close and never unlocked are renewed no more and free after the TTL"},
	{Name: "CloseTwice", Rules: []string{"R24"}, Locker: true, Test: testCloseTwice,
		Contract: "Close may be called often and at once, and each call returns nil within 5 s"},
	{Name: "CloseSparesOthers", Rules: []string{"R24"}, Locker: true, Test: testCloseSparesOthers,
		Contract: "Close of one Locker concerns no other"},
	{Name: "CloseDuringUse", Rules: []string{"R24"}, Test: testCloseDuringUse,
		Contract: "Close while many goroutines lock and unlock leaves each with a lease or ErrClosed, and no key taken for good"},
})

func testCloseRefusesLocks(t *T) {
	l, other, key := t.Locker(), t.Locker(), t.Key("k")
	t.Free(l, key)
	t.NoError(l.Close(), "Close")
	_, err := l.Lock(t.Context(), key)
	t.Is(err, locker.ErrClosed)
	_, err = l.TryLock(t.Context(), key)
	t.Is(err, locker.ErrClosed)
	t.Is(locker.Do(t.Context(), l, key, func(context.Context) error { return nil }), locker.ErrClosed)
	t.Free(other, key)
}

func testCloseEndsWaits(t *T) {
	holder, l, key := t.Locker(), t.Locker(), t.Key("k")
	lease := t.Lock(holder, key)
	var waiters []*suite.Waiter
	for range 5 {
		waiters = append(waiters, t.Wait(l, key))
	}
	t.NoError(l.Close(), "Close")
	for _, w := range waiters {
		err := t.Refused(w, t.Timing().Slack)
		t.Is(err, locker.ErrClosed)
		t.Isnt(err, locker.ErrNotAcquired, locker.ErrUnavailable)
	}
	t.Open(lease.Lost(), "the holder's Lost")
	t.Unlock(lease)
	t.FreeWithin(t.Timing().PollWithin, holder, key)
}

func testCloseEndsLeases(t *T) {
	l, other, key := t.Locker(), t.Locker(), t.Key("k")
	lease := t.Lock(l, key)
	ctx := lease.Context(t.Context())
	inner := t.LockUnder(ctx, l, key)
	t.NoError(l.Close(), "Close")
	for _, held := range []*locker.Lease{lease, inner} {
		t.Ends(held.Lost(), t.Timing().Slack, "the loss of a lease by Close")
	}
	t.Ends(ctx.Done(), t.Timing().Slack, "the end of a lease's context by Close")
	t.Is(context.Cause(ctx), locker.ErrClosed, locker.ErrLost)
	t.Is(ctx.Err(), locker.ErrLost)
	t.Taken(other, key)
	t.NoError(inner.Unlock(t.Context()), "Unlock of the inner lease after Close")
	t.Taken(other, key)
	t.NoError(lease.Unlock(t.Context()), "Unlock after Close")
	t.Is(lease.Unlock(t.Context()), locker.ErrNotHeld)
	t.Free(other, key)
}

func testCloseLeavesKeysToTheTTL(t *T) {
	ttl := t.Timing().ShortTTL
	l, other, key := t.Locker(), t.Locker(), t.Key("k")
	lease := t.Lock(l, key, locker.WithTTL(ttl))
	t.NoError(l.Close(), "Close")
	next, err := t.LockWithin(ttl+t.Timing().PollWithin, other, key)
	t.NoError(err, "Lock by another Locker after the TTL")
	if early := time.Until(lease.Deadline()); early > 0 {
		t.Errorf("the key was free %v before the deadline", early)
	}
	t.Is(lease.Unlock(t.Context()), locker.ErrLost)
	t.Taken(t.Locker(), key)
	t.Unlock(next)
}

func testCloseTwice(t *T) {
	const limit = 5 * time.Second
	l, key := t.Locker(), t.Key("k")
	t.Lock(l, key)
	t.Within(limit, "Close", func() {
		t.Together(5, func(int) { t.NoError(l.Close(), "Close") })
		t.NoError(l.Close(), "Close")
	})
}

func testCloseSparesOthers(t *T) {
	every := t.Timing().RenewEvery
	l, other, key := t.Locker(), t.Locker(locker.WithRenewInterval(every)), t.Key("k")
	lease := t.Lock(other, key)
	t.Lock(l, t.Key("own"))
	t.NoError(l.Close(), "Close")
	deadline := lease.Deadline()
	t.Eventually(every+t.Timing().Slack, "a renewal after another Locker's Close", func() bool {
		return lease.Deadline().After(deadline)
	})
	t.Open(lease.Lost(), "another Locker's Lost")
	w := t.Wait(t.Locker(), key)
	t.Unlock(lease)
	t.Unlock(t.Granted(w, t.Timing().PollWithin))
}

func testCloseDuringUse(t *T) {
	ttl := t.Timing().ShortTTL
	for round := range 5 {
		l, other := t.Locker(locker.WithTTL(ttl)), t.Locker()
		keys := []string{t.Key("a"), t.Key("b")}
		var started atomic.Int32
		closed := t.Go(func() {
			t.Eventually(t.Timing().Patience, "locks are under way", func() bool { return started.Load() > 20 })
			t.NoError(l.Close(), "Close")
		})
		t.Together(6, func(i int) {
			for {
				started.Add(1)
				lease, err := l.Lock(t.Context(), keys[(i+round)%2])
				if err != nil {
					t.Is(err, locker.ErrClosed)
					return
				}
				if err := lease.Unlock(t.Context()); err != nil {
					t.Is(err, locker.ErrLost)
				}
			}
		})
		t.Ends(closed, t.Timing().Patience, "the end of Close")
		for _, key := range keys {
			t.FreeWithin(ttl+t.Timing().PollWithin, other, key)
		}
	}
}

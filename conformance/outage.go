package conformance

import (
	"context"
	"slices"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/conformance/internal/suite"
	"github.com/distlock/locker/internal/test/pace"
)

var outageCases = group("outage", []Case{
	{Name: "TryLockUnreachable", Rules: []string{"R17"}, Needs: Capabilities{Faults: true}, Isolated: true, Test: testTryLockUnreachable,
		Contract: "TryLock with the store unreachable is ErrUnavailable, by its context's end at the latest, and not ErrNotAcquired"},
	{Name: "LockRidesOutAnOutage", Rules: []string{"R17"}, Needs: Capabilities{Faults: true}, Isolated: true, Test: testLockRidesOutAnOutage,
		Contract: "a Lock begun while the store is unreachable is granted when it comes back"},
	{Name: "OutageEndsTheWait", Rules: []string{"R17"}, Needs: Capabilities{Faults: true}, Isolated: true, Test: testOutageEndsTheWait,
		Contract: "a wait that is over during an outage is ErrUnavailable, with the context's error if that ended it, and not ErrNotAcquired"},
	{Name: "CancelInABlackHole", Rules: []string{"R16"}, Needs: Capabilities{Faults: true}, Isolated: true, Test: testCancelInABlackHole,
		Contract: "cancelling a Lock to which the store does not answer returns at once, and no key stays beyond a TTL"},
	{Name: "OutageHasALimit", Rules: []string{"R17"}, Locker: true, Needs: Capabilities{Faults: true}, Isolated: true, Slow: true, Test: testOutageHasALimit,
		Contract: "after an outage of 15 s the Locks that wait for a key fail together with ErrUnavailable"},
	{Name: "WaitersSurviveAnOutage", Rules: []string{"R15", "R17"}, Needs: Capabilities{Faults: true}, Isolated: true, Test: testWaitersSurviveAnOutage,
		Contract: "waiters for a held key go on waiting through an outage and get the key afterwards"},
	{Name: "LostWithoutAnAnswer", Rules: []string{"R10"}, Needs: Capabilities{Faults: true}, Isolated: true, Test: testLostWithoutAnAnswer,
		Contract: "a holder that cannot reach the store knows of its loss at Deadline, with no answer needed"},
	{Name: "RenewalRidesOutAnOutage", Rules: []string{"R11"}, Needs: Capabilities{Faults: true}, Isolated: true, Test: testRenewalRidesOutAnOutage,
		Contract: "a lease survives an outage that is shorter than what is left of it"},
	{Name: "UnlockUnreachable", Rules: []string{"R3", "R20"}, Needs: Capabilities{Faults: true}, Isolated: true, Test: testUnlockUnreachable,
		Contract: "Unlock with the store unreachable returns by its context's end with ErrUnavailable, may be repeated, and the key is free when the store is back"},
	{Name: "UnlockUnreachableWithoutContext", Rules: []string{"R20"}, Needs: Capabilities{Faults: true}, Isolated: true, Test: testUnlockUnreachableWithoutContext,
		Contract: "Unlock under a dead context with the store unreachable takes up to 5 s"},
	{Name: "LockAfterFailedUnlock", Rules: []string{"R4", "R19"}, Needs: Capabilities{Faults: true}, Isolated: true, Test: testLockAfterFailedUnlock,
		Contract: "after an Unlock that failed the same Locker can lock the key again when the TTL is over at the latest, and no late release harms that lease"},
	{Name: "CloseUnreachable", Rules: []string{"R24"}, Needs: Capabilities{Faults: true}, Isolated: true, Test: testCloseUnreachable,
		Contract: "Close returns within 5 s while nothing answers, with leases held and Locks waiting"},
})

// outages makes the store unreachable in each of the two ways and runs f.
func (t *T) outages(f func(way string, begin func() error)) {
	f("refusing", t.faults().Refuse)
	t.heal()
	f("silent", t.faults().BlackHole)
	t.heal()
}

// unavailable checks an attempt whose store could not be reached.
func (t *T) unavailable(err error) {
	t.Helper()
	t.Is(err, locker.ErrUnavailable)
	t.Isnt(err, locker.ErrNotAcquired)
}

func (t *T) heal() {
	t.Helper()
	t.NoError(t.faults().Heal(), "healing the store")
}

func testTryLockUnreachable(t *T) {
	l := t.Locker()
	t.outages(func(way string, begin func() error) {
		t.Free(l, t.Key(way)) // so that connections are up
		t.NoError(begin(), "ending the store's service")
		ctx, cancel := context.WithTimeout(t.Context(), t.Timing().ShortTTL)
		defer cancel()
		t.Within(t.Timing().ShortTTL+t.Timing().Prompt, way+": TryLock", func() {
			_, err := l.TryLock(ctx, t.Key(way))
			t.unavailable(err)
		})
		_, err := l.TryLock(t.Context(), t.Key(way))
		t.unavailable(err)
	})
}

func testLockRidesOutAnOutage(t *T) {
	l, other := t.Locker(), t.Locker()
	t.outages(func(way string, begin func() error) {
		key := t.Key(way)
		t.NoError(begin(), "ending the store's service")
		w := t.Start(l, key)
		// The subject is that Lock waits while trouble lasts.
		t.Sleep(t.Timing().ShortTTL)
		t.Open(w.Done(), way+": a Lock returns while the store is unreachable")
		t.heal()
		// A command that vanished is given up after some seconds at most.
		lease := t.Granted(w, t.Timing().Patience)
		t.Taken(other, key)
		t.Unlock(lease)
		t.FreeWithin(t.Timing().PollWithin, other, key)
	})
}

func testOutageEndsTheWait(t *T) {
	wait := t.Timing().ShortTTL
	l := t.Locker()
	t.outages(func(way string, begin func() error) {
		key := t.Key(way)
		t.NoError(begin(), "ending the store's service")
		start := pace.Now()
		_, err := l.Lock(t.Context(), key, locker.WithWait(wait))
		t.unavailable(err)
		if took := start.Took(); time.Since(start.Time) < wait || took > wait+t.Timing().Slack {
			t.Errorf("%s: WithWait(%v) took %v", way, wait, took)
		}
		ctx, cancel := context.WithTimeout(t.Context(), wait)
		defer cancel()
		_, err = l.Lock(ctx, key)
		t.unavailable(err)
		t.Is(err, context.DeadlineExceeded)
	})
}

func testCancelInABlackHole(t *T) {
	ttl := t.Timing().ShortTTL
	l, other, key := t.Locker(), t.Locker(), t.Key("k")
	t.Free(l, key)
	t.NoError(t.faults().BlackHole(), "ending the store's service")
	var waiters []*suite.Waiter
	for range 3 {
		waiters = append(waiters, t.Start(l, key, locker.WithTTL(ttl)))
	}
	t.Sleep(3 * t.Timing().RenewEvery) // until a healthy store would have answered
	for _, w := range waiters {
		w.Cancel()
	}
	for _, w := range waiters {
		err := t.Refused(w, t.Timing().Prompt)
		t.unavailable(err)
		t.Is(err, context.Canceled)
	}
	t.heal()
	t.FreeWithin(ttl+t.Timing().Slack+t.Timing().PollWithin, other, key)
	t.FreeWithin(t.Timing().PollWithin, l, key)
}

func testOutageHasALimit(t *T) {
	const limit = 15 * time.Second
	l, key := t.Locker(), t.Key("k")
	t.NoError(t.faults().Refuse(), "ending the store's service")
	start := pace.Now()
	// The limit is the TTL if that is more.
	ttl := locker.WithTTL(t.Timing().TTL)
	first := t.Start(l, key, ttl)
	t.Sleep(limit / 5)
	second := t.Start(l, key, ttl)
	// The outage counts for the key: who came later does not wait longer.
	for _, w := range []*suite.Waiter{first, second} {
		t.unavailable(t.Refused(w, limit+2*t.Timing().Slack))
		if real := w.At.Time.Sub(start.Time); real < limit-t.Timing().Slack || w.At.Since(start) > limit+2*t.Timing().Slack {
			t.Errorf("a Lock failed after %v of an outage", real)
		}
	}
	t.heal()
	t.FreeWithin(t.Timing().PollWithin, l, key)
}

func testWaitersSurviveAnOutage(t *T) {
	holder, waiter := t.Locker(), t.Locker()
	t.outages(func(way string, begin func() error) {
		key := t.Key(way)
		lease := t.Lock(holder, key, locker.WithTTL(time.Hour), locker.WithoutRenewal())
		waiters := []*suite.Waiter{t.Wait(waiter, key), t.Wait(waiter, key)}
		t.NoError(begin(), "ending the store's service")
		// Until they have looked, as they do about once a second.
		t.Sleep(t.Timing().PollWithin)
		t.heal()
		for _, w := range waiters {
			t.Open(w.Done(), way+": a waiter's Lock returns")
		}
		t.NoError(lease.Unlock(t.Context()), way+": Unlock")
		// In any order: an attempt without an answer holds up the queue for a moment
		// only.
		for len(waiters) > 0 {
			i := t.first(waiters, t.Timing().Patience)
			t.Unlock(t.Granted(waiters[i], t.Timing().Slack))
			waiters = slices.Delete(waiters, i, i+1)
		}
	})
}

func testLostWithoutAnAnswer(t *T) {
	ttl := t.Timing().ShortTTL
	l, other := t.Locker(), t.Locker()
	t.outages(func(way string, begin func() error) {
		key := t.Key(way)
		lease := t.Lock(l, key, locker.WithTTL(ttl))
		ctx := lease.Context(t.Context())
		t.NoError(begin(), "ending the store's service")
		t.lostAtDeadline(ctx, lease)
		t.heal()
		t.FreeWithin(ttl+t.Timing().PollWithin+t.Timing().Slack, other, key)
		t.Is(lease.Unlock(t.Context()), locker.ErrLost)
	})
}

// lostAtDeadline checks that a lease, which cannot be renewed any more, and its
// context end at the deadline.
func (t *T) lostAtDeadline(ctx context.Context, lease *locker.Lease) {
	t.Helper()
	began := pace.Now()
	for {
		// In this order: what was over at now stays over.
		now := time.Now()
		over := !now.Before(lease.Deadline())
		if err := ctx.Err(); err != nil {
			t.Is(err, locker.ErrLost)
			break
		}
		if over {
			t.Fatalf("at the deadline the lease's context says that it is held")
		}
		if began.Took() > t.Timing().ShortTTL+t.Timing().Slack {
			t.Fatalf("the lease does not end")
		}
		time.Sleep(time.Millisecond) // it is asked up to its end
	}
	t.Ends(lease.Lost(), t.Timing().Slack, "Lost closes at the deadline")
}

func testRenewalRidesOutAnOutage(t *T) {
	every := t.Timing().RenewEvery
	var events suite.EventLog
	ttl := t.Timing().TTL + 2*t.Timing().Slack
	l, other, key := t.Locker(locker.WithRenewInterval(every), suite.WithObserver(&events)), t.Locker(), t.Key("k")
	lease := t.Lock(l, key, locker.WithTTL(ttl))
	t.NoError(t.faults().Refuse(), "ending the store's service")
	t.Eventually(every+t.Timing().Slack, "renewals fail", func() bool { return events.Count(locker.EventRenewFailed) >= 2 })
	t.heal()
	n := events.Count(locker.EventRenewed)
	t.Eventually(t.Timing().Patience, "renewals succeed again", func() bool { return events.Count(locker.EventRenewed) >= n+2 })
	t.Open(lease.Lost(), "Lost")
	t.Taken(other, key)
	t.Unlock(lease)
}

func testUnlockUnreachable(t *T) {
	l, other := t.Locker(), t.Locker()
	t.outages(func(way string, begin func() error) {
		key := t.Key(way)
		lease := t.Lock(l, key)
		t.NoError(begin(), "ending the store's service")
		ctx, cancel := context.WithTimeout(t.Context(), t.Timing().ShortTTL)
		defer cancel()
		t.Within(t.Timing().ShortTTL+t.Timing().Prompt, way+": Unlock", func() {
			err := lease.Unlock(ctx)
			t.Is(err, locker.ErrUnavailable)
			t.Isnt(err, locker.ErrLost, locker.ErrNotHeld)
		})
		t.heal()
		if err := lease.Unlock(t.Context()); err != nil {
			// The TTL may have been faster than the store's coming back.
			t.Is(err, locker.ErrLost)
		}
		t.Is(lease.Unlock(t.Context()), locker.ErrNotHeld)
		t.FreeWithin(t.Timing().PollWithin, other, key)
	})
}

func testUnlockUnreachableWithoutContext(t *T) {
	const limit = 5 * time.Second
	dead, cancel := context.WithCancel(t.Context())
	cancel()
	l, key := t.Locker(), t.Key("k")
	lease := t.Lock(l, key, locker.WithTTL(time.Minute))
	t.NoError(t.faults().BlackHole(), "ending the store's service")
	t.Within(limit+t.Timing().Slack, "Unlock", func() { t.Is(lease.Unlock(dead), locker.ErrUnavailable) })
	t.heal()
	t.NoError(lease.Unlock(dead), "Unlock with the store back")
	t.FreeWithin(t.Timing().PollWithin, l, key)
}

func testLockAfterFailedUnlock(t *T) {
	ttl := t.Timing().TTL
	l, other, key := t.Locker(), t.Locker(), t.Key("k")
	lease := t.Lock(l, key, locker.WithTTL(ttl))
	t.NoError(t.faults().Refuse(), "ending the store's service")
	ctx, cancel := context.WithTimeout(t.Context(), t.Timing().RenewEvery)
	defer cancel()
	t.Is(lease.Unlock(ctx), locker.ErrUnavailable)
	t.heal()
	again, err := t.LockWithin(ttl+t.Timing().PollWithin, l, key)
	t.NoError(err, "Lock by the same Locker")
	_ = lease.Unlock(t.Context())
	t.Taken(other, key)
	t.NoError(again.Renew(t.Context()), "Renew of the new lease")
	t.Unlock(again)
}

func testCloseUnreachable(t *T) {
	const limit = 5 * time.Second
	l := t.Locker()
	lease := t.Lock(l, t.Key("held"))
	t.NoError(t.faults().BlackHole(), "ending the store's service")
	w := t.Start(l, t.Key("wanted"))
	t.Sleep(3 * t.Timing().RenewEvery) // until a healthy store would have answered
	t.Within(limit+t.Timing().Slack, "Close", func() { _ = l.Close() })
	t.Is(t.Refused(w, t.Timing().Slack), locker.ErrClosed)
	t.Ends(lease.Lost(), t.Timing().Slack, "the loss of a lease by Close")
}

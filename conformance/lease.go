package conformance

import (
	"context"
	"fmt"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/conformance/internal/suite"
	"github.com/distlock/locker/internal/test/pace"
)

var leaseCases = group("lease", []Case{
	{Name: "Expires", Rules: []string{"R9", "R15"}, Test: testExpires,
		Contract: "without renewal nobody else gets the key before Deadline, and a waiter gets it soon after"},
	{Name: "TakenUntilDeadline", Rules: []string{"R1", "R9"}, Test: testTakenUntilDeadline,
		Contract: "with a TTL that is no multiple of what the store counts in nobody who tries all the time is granted the key before Deadline, after the grant and after a renewal"},
	{Name: "RenewalsDoNotAddUp", Rules: []string{"R9", "R15"}, Test: testRenewalsDoNotAddUp,
		Contract: "however often a lease was renewed, the key is free a TTL after the last renewal"},
	{Name: "TTLIsExact", Rules: []string{"R9"}, Needs: Capabilities{Inspect: true}, Test: testTTLIsExact,
		Contract: "the store keeps the TTL asked for, not less than Deadline says, and not more than asked by what it counts in"},
	{Name: "RenewExtends", Rules: []string{"R9", "R11"}, Test: testRenewExtends,
		Contract: "Renew makes the lease last a full TTL from then"},
	{Name: "RenewAfterLoss", Rules: []string{"R2", "R11"}, Test: testRenewAfterLoss,
		Contract: "Renew of an expired lease is ErrLost and does not take the key again"},
	{Name: "RenewUnderDeadContext", Rules: []string{"R11"}, Locker: true, Test: testRenewUnderDeadContext,
		Contract: "Renew under a context that is over fails with its error and leaves the lease as it was"},
	{Name: "AutoRenewHolds", Rules: []string{"R11"}, Test: testAutoRenewHolds,
		Contract: "a lease renewed by itself is held for three TTLs, and nobody gets in"},
	{Name: "RenewalStopsAtUnlock", Rules: []string{"R13"}, Test: testRenewalStopsAtUnlock,
		Contract: "nothing is renewed after Unlock, and the key stays free"},
	{Name: "RenewalAfterBrokenPredecessor", Rules: []string{"R11"}, Needs: Capabilities{Break: true}, Test: testRenewalAfterBrokenPredecessor,
		Contract: "a new lease on a key whose last one was lost is renewed like any other"},
	{Name: "RenewalNeverResurrects", Rules: []string{"R11"}, Needs: Capabilities{Break: true}, Test: testRenewalNeverResurrects,
		Contract: "a renewal that finds its lock gone does not create it anew"},
	{Name: "BreakIsNoticed", Rules: []string{"R10", "R11"}, Needs: Capabilities{Break: true}, Test: testBreakIsNoticed,
		Contract: "a lock that was deleted, ended early or replaced in the store is known to be lost at the next renewal"},
	{Name: "LostAtDeadline", Rules: []string{"R10"}, Locker: true, Test: testLostAtDeadline,
		Contract: "from Deadline on every question about the lease is answered with the loss, however late timers are; Lost closes soon after"},
	{Name: "LostIsNotUnlock", Rules: []string{"R10"}, Locker: true, Test: testLostIsNotUnlock,
		Contract: "Unlock does not close Lost, whenever Lost was asked for"},
	{Name: "LostIsKept", Rules: []string{"R10"}, Locker: true, Test: testLostIsKept,
		Contract: "Lost and contexts asked for after the loss are closed from the start"},
	{Name: "ContextEndsByLoss", Rules: []string{"R10"}, Locker: true, Test: testContextEndsByLoss,
		Contract: "on loss Err and Cause of the lease's contexts match ErrLost, and so does the Cause of contexts derived from them"},
	{Name: "ContextEndsByUnlock", Rules: []string{"R10"}, Locker: true, Test: testContextEndsByUnlock,
		Contract: "after Unlock Err and Cause of the lease's contexts are context.Canceled"},
	{Name: "ContextFollowsParent", Rules: []string{"R10"}, Locker: true, Test: testContextFollowsParent,
		Contract: "a lease's context has its parent's values and deadline and ends with it, with its cause; the lease does not"},
})

func testExpires(t *T) {
	ttl := t.Timing().ShortTTL
	a, b, key := t.Locker(), t.Locker(), t.Key("k")
	first := t.Lock(a, key, locker.WithTTL(ttl), locker.WithoutRenewal())
	w := t.Wait(b, key)
	next := t.Granted(w, ttl+t.Timing().PollWithin)
	if early := first.Deadline().Sub(w.At.Time); early > 0 {
		t.Errorf("the next holder was granted the key %v before the deadline", early)
	}
	t.Unlock(next)
	t.Is(first.Unlock(t.Context()), locker.ErrLost)
}

// testTakenUntilDeadline believes no harness about the TTL: it waits for its end.
func testTakenUntilDeadline(t *T) {
	a, b := t.Locker(), t.Locker()
	t.Together(2, func(renewals int) {
		// Again, if the machine left out the moments that matter.
		for try := range 5 {
			if t.takenUntilDeadline(a, b, t.Key(fmt.Sprint(renewals, " ", try)), renewals) {
				return
			}
		}
	})
}

// takenUntilDeadline reports whether b was refused the key up to a moment before a's Deadline.
func (t *T) takenUntilDeadline(a, b locker.Locker, key string, renewals int) bool {
	t.Helper()
	const moment = 20 * time.Millisecond
	ttl := t.Timing().uneven()
	lease := t.Lock(a, key, locker.WithTTL(ttl), locker.WithoutRenewal())
	for range renewals {
		t.NoError(lease.Renew(t.Context()), "Renew")
	}
	deadline, limit := lease.Deadline(), ttl+t.Timing().Granularity+t.Timing().PollWithin
	// refused is the last time that it was asked for in vain.
	var refused time.Time
	for start := pace.Now(); ; time.Sleep(time.Millisecond) { // the end of a TTL is no event
		asked := time.Now()
		next, err := b.TryLock(t.Context(), key)
		if at := time.Now(); err == nil {
			t.Unlock(next)
			if at.Before(deadline) {
				t.Fatalf("after %d renewals of a lease of %v the key was granted to another owner %v before Deadline: does the store count in something greater than milliseconds, and round down?", renewals, ttl, deadline.Sub(at))
			}
			return refused.After(deadline.Add(-moment))
		}
		t.Is(err, locker.ErrNotAcquired)
		if refused = asked; start.Took() > limit {
			t.Fatalf("a lease of %v is not over after %v", ttl, limit)
		}
	}
}

func testRenewalsDoNotAddUp(t *T) {
	ttl := t.Timing().TTL // as many renewals as these have to be in time
	within := ttl + t.Timing().Granularity + t.Timing().PollWithin
	a, b, key := t.Locker(), t.Locker(), t.Key("k")
	lease := t.Lock(a, key, locker.WithTTL(ttl), locker.WithoutRenewal())
	// Were each added to what is left, it would be more than is allowed on the slowest machine.
	for range pace.MaxSlowdown*int(within/ttl+1) + 2 {
		t.NoError(lease.Renew(t.Context()), "Renew")
	}
	t.FreeWithin(within, b, key)
	t.Is(lease.Unlock(t.Context()), locker.ErrLost)
}

func testTTLIsExact(t *T) {
	l := t.Locker()
	for _, ttl := range []time.Duration{10*time.Second + 500*time.Millisecond, time.Minute + time.Millisecond} {
		key := t.Key(ttl.String())
		lease := t.Lock(l, key, locker.WithTTL(ttl), locker.WithoutRenewal())
		left, err := t.inspector().TTL(t.Context(), key)
		t.NoError(err, "looking for the TTL")
		least := time.Until(lease.Deadline()) // less than when we looked
		if most := ttl + t.Timing().Granularity; left > most {
			t.Errorf("the store has %v left of a lease of %v, and counts in %v (see Timing.Granularity)", left, ttl, t.Timing().Granularity)
		}
		if left < least {
			t.Errorf("the store has %v left, and Deadline promises %v", left, least)
		}
		t.Unlock(lease)
	}
}

func testRenewExtends(t *T) {
	ttl := t.Timing().TTL
	a, b, key := t.Locker(), t.Locker(), t.Key("k")
	lease := t.Lock(a, key, locker.WithTTL(ttl), locker.WithoutRenewal())
	first := lease.Deadline()
	// Past the first deadline, in steps short enough not to miss one.
	for time.Now().Before(first.Add(ttl / 4)) {
		t.Sleep(ttl / 8)
		before := time.Now()
		t.NoError(lease.Renew(t.Context()), "Renew")
		after := time.Now()
		margin := ttl/100 + 2*time.Millisecond
		if d := lease.Deadline(); d.After(after.Add(ttl-margin)) || d.Before(before.Add(ttl-2*margin)) {
			t.Errorf("after Renew the deadline is in %v, for a TTL of %v", d.Sub(after), ttl)
		}
		t.Taken(b, key)
	}
	t.Open(lease.Lost(), "Lost")
	t.Unlock(lease)
	t.Free(b, key)
}

func testRenewAfterLoss(t *T) {
	a, b, key := t.Locker(), t.Locker(), t.Key("k")
	stale := t.lose(a, key)
	for range 3 {
		t.Is(stale.Renew(t.Context()), locker.ErrLost)
	}
	t.FreeWithin(t.Timing().PollWithin, b, key)
	t.Is(stale.Renew(t.Context()), locker.ErrLost)
	t.Free(b, key)
	t.Is(stale.Unlock(t.Context()), locker.ErrLost)
}

func testRenewUnderDeadContext(t *T) {
	a, b, key := t.Locker(), t.Locker(), t.Key("k")
	lease := t.Lock(a, key)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := lease.Renew(ctx)
	t.Is(err, context.Canceled)
	t.Isnt(err, locker.ErrLost, locker.ErrNotHeld)
	t.Open(lease.Lost(), "Lost")
	t.Taken(b, key)
	t.NoError(lease.Renew(t.Context()), "Renew")
	t.Unlock(lease)
}

func testAutoRenewHolds(t *T) {
	a, b, key := t.Locker(), t.Locker(), t.Key("k")
	lease := t.Lock(a, key, locker.WithTTL(t.Timing().TTL))
	w := t.Wait(b, key)
	// That time passes without a loss is the subject.
	t.Sleep(3 * t.Timing().TTL)
	t.Waits(w)
	t.Open(lease.Lost(), "Lost")
	t.Unlock(lease)
	t.Unlock(t.Granted(w, t.Timing().PollWithin))
}

func testRenewalStopsAtUnlock(t *T) {
	var events suite.EventLog
	every := t.Timing().RenewEvery
	a, b, key := t.Locker(locker.WithRenewInterval(every), suite.WithObserver(&events)), t.Locker(), t.Key("k")
	lease := t.Lock(a, key)
	t.Eventually(3*every+t.Timing().Slack, "three renewals", func() bool { return events.Count(locker.EventRenewed) >= 3 })
	t.Unlock(lease)
	deadline := lease.Deadline()
	n := events.Count(locker.EventRenewed)
	// That nothing more happens is the subject. One renewal may have been on
	// its way, and its event late.
	t.Sleep(5 * every)
	if more := events.Count(locker.EventRenewed) - n; more > 1 {
		t.Errorf("%d renewals after Unlock", more)
	}
	if d := lease.Deadline(); d.After(deadline) {
		t.Errorf("the deadline moved by %v after Unlock", d.Sub(deadline))
	}
	t.Free(b, key)
}

func testRenewalAfterBrokenPredecessor(t *T) {
	var events suite.EventLog
	every := t.Timing().RenewEvery
	l, other, key := t.Locker(locker.WithRenewInterval(every), suite.WithObserver(&events)), t.Locker(), t.Key("k")
	broken := t.Lock(l, key)
	t.NoError(t.breaker().Break(t.Context(), key), "breaking the lock")
	t.Ends(broken.Lost(), every+t.Timing().Slack, "the loss of a broken lock")
	next := t.Lock(l, key)
	n := events.Count(locker.EventRenewed)
	t.Eventually(3*every+t.Timing().Slack, "three renewals", func() bool { return events.Count(locker.EventRenewed) >= n+3 })
	t.Taken(other, key)
	t.Is(broken.Unlock(t.Context()), locker.ErrLost)
	t.Taken(other, key)
	t.Unlock(next)
}

func testRenewalNeverResurrects(t *T) {
	every := t.Timing().RenewEvery
	a, b, key := t.Locker(locker.WithRenewInterval(every)), t.Locker(), t.Key("k")
	lease := t.Lock(a, key)
	t.NoError(t.breaker().Break(t.Context(), key), "breaking the lock")
	t.Ends(lease.Lost(), every+t.Timing().Slack, "the loss of a broken lock")
	t.Free(b, key)
	// That nothing more happens is the subject.
	t.Sleep(3 * every)
	t.Free(b, key)
	t.Is(lease.Unlock(t.Context()), locker.ErrLost)
}

func testBreakIsNoticed(t *T) {
	every := t.Timing().RenewEvery
	l := t.Locker(locker.WithRenewInterval(every))
	for name, harm := range map[string]func(context.Context, string) error{
		"break": t.breaker().Break, "expire": t.breaker().Expire, "steal": t.breaker().Steal,
	} {
		// So long that nothing but a renewal can notice.
		lease := t.Lock(l, t.Key(name), locker.WithTTL(time.Hour))
		ctx := lease.Context(t.Context())
		t.NoError(harm(t.Context(), lease.Key()), name)
		t.Ends(lease.Lost(), every+t.Timing().Slack, name+" is noticed")
		t.Ends(ctx.Done(), t.Timing().Slack, "the lease's context ends")
		t.Is(context.Cause(ctx), locker.ErrLost)
		t.Is(lease.Unlock(t.Context()), locker.ErrLost)
	}
}

func testLostAtDeadline(t *T) {
	l, key := t.Locker(), t.Key("k")
	lease := t.Lock(l, key, locker.WithTTL(t.Timing().ShortTTL), locker.WithoutRenewal())
	ctx := lease.Context(t.Context())
	child := context.WithValue(ctx, struct{ t *T }{t}, 0)
	deadline := lease.Deadline()
	if left := time.Until(deadline); left > t.Timing().ShortTTL {
		t.Fatalf("the deadline is %v away, for a TTL of %v", left, t.Timing().ShortTTL)
	}
	// Asking all the time: no answer given after the deadline may be "held",
	// however busy the machine. So the clock is read before the question.
	for over := false; !over; {
		over = !time.Now().Before(deadline)
		for _, c := range []context.Context{ctx, child} {
			if err := c.Err(); over {
				t.Is(err, locker.ErrLost)
			}
		}
		if holds := lease.Holds(); over && holds != 0 {
			t.Errorf("Holds is %d after the deadline", holds)
		}
		time.Sleep(time.Millisecond) // it is asked up to its end and beyond
	}
	t.Is(lease.Renew(t.Context()), locker.ErrLost)
	t.Ends(lease.Lost(), t.Timing().Slack, "Lost closes at the deadline")
	t.Ends(ctx.Done(), t.Timing().Slack, "the lease's context ends at the deadline")
	t.Is(lease.Unlock(t.Context()), locker.ErrLost)
}

func testLostIsNotUnlock(t *T) {
	l, key := t.Locker(), t.Key("k")
	lease := t.Lock(l, key, locker.WithTTL(t.Timing().TTL))
	before := lease.Lost()
	t.Unlock(lease)
	// Were it closed, then at once or by a timer set for the deadline.
	t.SleepPast(lease.Deadline())
	t.Open(before, "Lost, asked for before Unlock")
	t.Open(lease.Lost(), "Lost, asked for after Unlock")
}

func testLostIsKept(t *T) {
	l, key := t.Locker(), t.Key("k")
	lease := t.lose(l, key)
	for range 2 {
		t.Ends(lease.Lost(), 0, "Lost, asked for after the loss")
		ctx := lease.Context(t.Context())
		t.Ends(ctx.Done(), 0, "a context made after the loss is over")
		t.Is(ctx.Err(), locker.ErrLost)
		t.Is(context.Cause(ctx), locker.ErrLost)
	}
	t.Is(lease.Unlock(t.Context()), locker.ErrLost)
	t.Ends(lease.Lost(), 0, "Lost, asked for after the loss and Unlock")
}

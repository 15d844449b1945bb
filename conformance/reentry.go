package conformance

import (
	"context"
	"time"

	"github.com/distlock/locker"
)

var reentryCases = group("reentry", []Case{
	{Name: "LeaseContextReenters", Rules: []string{"R5"}, Test: testLeaseContextReenters,
		Contract: "Lock and TryLock under a lease's context re-enter its key at once, and the key is free after as many Unlocks as Locks, in any order"},
	{Name: "DerivedContextReenters", Rules: []string{"R5"}, Test: testDerivedContextReenters,
		Contract: "re-entry works under contexts derived from a lease's, with values, deadlines or without cancellation"},
	{Name: "AncestorReenters", Rules: []string{"R5"}, Test: testAncestorReenters,
		Contract: "under an inner lease's context the keys of the outer leases re-enter too"},
	{Name: "OtherKeyIsTopLevel", Rules: []string{"R5"}, Locker: true, Test: testOtherKeyIsTopLevel,
		Contract: "two goroutines under one outer lease exclude each other on another key"},
	{Name: "OtherLockerIsExcluded", Rules: []string{"R5"}, Locker: true, Test: testOtherLockerIsExcluded,
		Contract: "a lease's context means nothing to another Locker"},
	{Name: "ReentryPassesTheQueue", Rules: []string{"R5", "R14"}, Test: testReentryPassesTheQueue,
		Contract: "re-entry does not queue behind others that wait for the key"},
	{Name: "SurplusUnlock", Rules: []string{"R3", "R5"}, Test: testSurplusUnlock,
		Contract: "a second Unlock of an inner lease is ErrNotHeld and takes no hold of another lease's"},
	{Name: "ReentryAfterLoss", Rules: []string{"R7"}, Test: testReentryAfterLoss,
		Contract: "Lock under a lost lease's context, or for an owner whose lease is lost, is ErrLost, never a fresh acquisition"},
	{Name: "LossEndsEveryHold", Rules: []string{"R7", "R10"}, Test: testLossEndsEveryHold,
		Contract: "on loss every lease on the acquisition is lost, and each first Unlock is ErrLost"},
	{Name: "UnlockedLeaseIsIgnored", Rules: []string{"R5"}, Test: testUnlockedLeaseIsIgnored,
		Contract: "an unlocked lease that a context still carries neither re-enters nor stands in the way"},
	{Name: "InnerUnlockKeepsRenewal", Rules: []string{"R6", "R13"}, Test: testInnerUnlockKeepsRenewal,
		Contract: "an inner Unlock does not stop the renewal of the outer lease"},
	{Name: "InnerNeverShortens", Rules: []string{"R6"}, Test: testInnerNeverShortens,
		Contract: "an inner Lock with a shorter TTL, and its Unlock, leave the deadline where it was"},
	{Name: "InnerNeverShortensStore", Rules: []string{"R6"}, Needs: Capabilities{Inspect: true}, Test: testInnerNeverShortensStore,
		Contract: "an inner Lock and its Unlock do not shorten the lease in the store"},
	{Name: "InnerLimitsDoNotCount", Rules: []string{"R6", "R12"}, Locker: true, Test: testInnerLimitsDoNotCount,
		Contract: "limits given to an inner Lock do not end the outer lease"},
	{Name: "InnerContextEndsAlone", Rules: []string{"R5", "R10"}, Locker: true, Test: testInnerContextEndsAlone,
		Contract: "Unlock of an inner lease ends that lease's contexts and not the outer's"},
})

func testLeaseContextReenters(t *T) {
	l, other, key := t.Locker(), t.Locker(), t.Key("k")
	for _, order := range [][]int{{2, 1, 0}, {0, 1, 2}, {1, 0, 2}} {
		leases := []*locker.Lease{t.Lock(l, key)}
		ctx := leases[0].Context(t.Context())
		leases = append(leases, t.LockUnder(ctx, l, key))
		inner, err := l.TryLock(ctx, key)
		leases = append(leases, t.Got("TryLock", inner, err))
		for n, i := range order {
			for _, lease := range leases {
				if lease.Holds() != 3-n {
					t.Errorf("Holds is %d with %d leases not unlocked", lease.Holds(), 3-n)
				}
			}
			t.Taken(other, key)
			t.Unlock(leases[i])
		}
		t.Free(other, key)
	}
}

func testDerivedContextReenters(t *T) {
	type ctxKey struct{}
	l, key := t.Locker(), t.Key("k")
	lease := t.Lock(l, key)
	ctx := lease.Context(t.Context())
	timeout, cancel := context.WithTimeout(ctx, t.Timing().Patience)
	defer cancel()
	for _, derived := range []context.Context{
		context.WithValue(ctx, ctxKey{}, 1), timeout, context.WithoutCancel(ctx), lease.Context(timeout),
	} {
		inner := t.LockUnder(derived, l, key)
		if inner.Owner() != lease.Owner() || inner.Holds() != 2 {
			t.Errorf("the inner lease is of owner %q with %d holds, the outer of %q", inner.Owner(), inner.Holds(), lease.Owner())
		}
		t.Unlock(inner)
	}
	t.Unlock(lease)
}

func testAncestorReenters(t *T) {
	l, other, a, b := t.Locker(), t.Locker(), t.Key("a"), t.Key("b")
	outer := t.Lock(l, a)
	middle := t.LockUnder(outer.Context(t.Context()), l, b)
	ctx := middle.Context(outer.Context(t.Context()))
	innerA, innerB := t.LockUnder(ctx, l, a), t.LockUnder(ctx, l, b)
	if innerA.Holds() != 2 || innerB.Holds() != 2 {
		t.Errorf("%d and %d holds after two Locks of each key", innerA.Holds(), innerB.Holds())
	}
	for _, lease := range []*locker.Lease{innerA, innerB, middle, outer} {
		t.Taken(other, lease.Key())
		t.Unlock(lease)
	}
	t.Free(other, a)
	t.Free(other, b)
}

func testOtherKeyIsTopLevel(t *T) {
	l, a, b := t.Locker(), t.Key("a"), t.Key("b")
	ctx := t.Lock(l, a).Context(t.Context())
	first := t.LockUnder(ctx, l, b)
	t.TakenUnder(ctx, l, b)
	w := t.WaitUnder(ctx, l, b)
	t.Open(w.Done(), "the second goroutine's Lock returns")
	t.Unlock(first)
	second := t.Granted(w, t.Timing().PollWithin)
	if second.Owner() == first.Owner() {
		t.Errorf("two acquisitions under one outer lease have the same owner %q", first.Owner())
	}
	t.TakenUnder(ctx, l, b)
	t.Unlock(second)
}

func testOtherLockerIsExcluded(t *T) {
	a, b, key := t.Locker(), t.Locker(), t.Key("k")
	lease := t.Lock(a, key)
	t.TakenUnder(lease.Context(t.Context()), b, key)
	t.Unlock(lease)
	t.Free(b, key)
}

func testReentryPassesTheQueue(t *T) {
	l, other, key := t.Locker(), t.Locker(), t.Key("k")
	lease := t.Lock(l, key)
	near, far := t.Wait(l, key), t.Wait(other, key)
	var inner *locker.Lease
	t.Prompt("re-entry with others waiting", func() { inner = t.LockUnder(lease.Context(t.Context()), l, key) })
	t.Unlock(inner)
	t.Waits(near)
	t.Waits(far)
	t.Unlock(lease)
	select {
	case <-near.Done():
	case <-far.Done():
		near, far = far, near
	case <-t.Context().Done():
	}
	t.Unlock(t.Granted(near, t.Timing().Slack))
	t.Unlock(t.Granted(far, t.Timing().PollWithin))
}

func testSurplusUnlock(t *T) {
	l, other, key := t.Locker(), t.Locker(), t.Key("k")
	outer := t.Lock(l, key)
	inner := t.LockUnder(outer.Context(t.Context()), l, key)
	t.Unlock(inner)
	for range 3 {
		t.Is(inner.Unlock(t.Context()), locker.ErrNotHeld)
	}
	t.Taken(other, key)
	if outer.Holds() != 1 {
		t.Errorf("Holds is %d, one lease is not unlocked", outer.Holds())
	}
	t.Unlock(outer)
	t.Free(other, key)
}

func testReentryAfterLoss(t *T) {
	l, other, key := t.Locker(), t.Locker(), t.Key("k")
	named := locker.ContextWithOwner(t.Context(), "me")
	short := []locker.LockOption{locker.WithTTL(t.Timing().ShortTTL), locker.WithoutRenewal()}
	for _, ctx := range []context.Context{t.Context(), named} {
		lease := t.LockUnder(ctx, l, key, short...)
		leaseCtx := lease.Context(ctx)
		t.Ends(lease.Lost(), t.Timing().ShortTTL+t.Timing().Slack, "the loss of a lease that is not renewed")
		t.FreeWithin(t.Timing().PollWithin, other, key)
		again := []context.Context{leaseCtx, context.WithoutCancel(leaseCtx)}
		if ctx == named {
			again = append(again, named)
		}
		for _, ctx := range again {
			_, err := l.Lock(ctx, key)
			t.Is(err, locker.ErrLost)
			_, err = l.TryLock(ctx, key)
			t.Is(err, locker.ErrLost)
		}
		t.Free(other, key)
		// Once Lock has returned ErrLost, and the lease is unlocked, the owner may start anew.
		t.Is(lease.Unlock(t.Context()), locker.ErrLost)
		t.Unlock(t.LockUnder(context.WithoutCancel(leaseCtx), l, key))
	}
}

func testLossEndsEveryHold(t *T) {
	l, other, key := t.Locker(), t.Locker(), t.Key("k")
	outer := t.Lock(l, key, locker.WithTTL(t.Timing().ShortTTL), locker.WithoutRenewal())
	inner := t.LockUnder(outer.Context(t.Context()), l, key)
	for _, lease := range []*locker.Lease{inner, outer} {
		t.Ends(lease.Lost(), t.Timing().ShortTTL+t.Timing().Slack, "the loss of a lease that is not renewed")
		if lease.Holds() != 0 {
			t.Errorf("Holds is %d after the loss", lease.Holds())
		}
	}
	next := t.Lock(other, key)
	t.Is(inner.Unlock(t.Context()), locker.ErrLost)
	t.Is(outer.Unlock(t.Context()), locker.ErrLost)
	t.Taken(l, key)
	t.Unlock(next)
}

func testUnlockedLeaseIsIgnored(t *T) {
	l, other, key := t.Locker(), t.Locker(), t.Key("k")
	first := t.Lock(l, key)
	ctx := context.WithoutCancel(first.Context(t.Context()))
	t.Unlock(first)

	second := t.LockUnder(ctx, l, key)
	if second.Owner() == first.Owner() || second.Holds() != 1 {
		t.Errorf("the new acquisition has %d holds, and the owner %q of the old one, %q", second.Holds(), second.Owner(), first.Owner())
	}
	t.TakenUnder(ctx, l, key)
	t.Unlock(second)

	third := t.Lock(other, key)
	t.TakenUnder(ctx, l, key)
	t.Unlock(third)
}

func testInnerUnlockKeepsRenewal(t *T) {
	l, other, key := t.Locker(), t.Locker(), t.Key("k")
	outer := t.Lock(l, key, locker.WithTTL(t.Timing().TTL))
	t.Unlock(t.LockUnder(outer.Context(t.Context()), l, key))
	// That time passes without a loss is the subject.
	for end := time.Now().Add(t.Timing().TTL + t.Timing().TTL/2); time.Now().Before(end); t.Sleep(t.Timing().TTL / 10) {
		t.Taken(other, key)
	}
	t.Open(outer.Lost(), "the outer lease's Lost")
	t.Unlock(outer)
	t.Free(other, key)
}

func testInnerNeverShortens(t *T) {
	l, key := t.Locker(), t.Key("k")
	outer := t.Lock(l, key)
	ctx := outer.Context(t.Context())
	before := outer.Deadline()
	inner := t.LockUnder(ctx, l, key, locker.WithTTL(t.Timing().MinTTL), locker.WithoutRenewal())
	for _, lease := range []*locker.Lease{outer, inner} {
		if lease.Deadline().Before(before) {
			t.Errorf("the deadline moved %v forward", before.Sub(lease.Deadline()))
		}
	}
	t.Unlock(inner)
	if outer.Deadline().Before(before) {
		t.Errorf("the inner Unlock moved the deadline %v forward", before.Sub(outer.Deadline()))
	}
	t.Unlock(outer)
}

func testInnerNeverShortensStore(t *T) {
	l, key := t.Locker(), t.Key("k")
	outer := t.Lock(l, key, locker.WithTTL(time.Hour))
	check := func(when string) {
		ttl, err := t.inspector().TTL(t.Context(), key)
		t.NoError(err, "looking for the TTL")
		if ttl < time.Hour-t.Timing().Patience {
			t.Errorf("%s the store has %v left of a lease of an hour", when, ttl)
		}
	}
	inner := t.LockUnder(outer.Context(t.Context()), l, key, locker.WithTTL(t.Timing().MinTTL))
	check("after an inner Lock")
	t.NoError(inner.Renew(t.Context()), "Renew of an inner lease")
	check("after Renew of an inner lease")
	t.Unlock(inner)
	check("after an inner Unlock")
	t.Unlock(outer)
}

func testInnerLimitsDoNotCount(t *T) {
	l, key := t.Locker(locker.WithRenewInterval(t.Timing().RenewEvery)), t.Key("k")
	outer := t.Lock(l, key)
	for _, renewal := range []locker.LockOption{locker.WithMaxRenewals(1), locker.WithoutRenewal()} {
		inner := t.LockUnder(outer.Context(t.Context()), l, key, locker.WithMaxHold(t.Timing().RenewEvery), renewal)
		// Well past both limits, had they counted.
		t.Sleep(4 * t.Timing().RenewEvery)
		t.Open(inner.Lost(), "the inner lease's Lost")
		t.Open(outer.Lost(), "the outer lease's Lost")
		t.Unlock(inner)
	}
	t.Unlock(outer)
}

func testInnerContextEndsAlone(t *T) {
	l, key := t.Locker(), t.Key("k")
	outer := t.Lock(l, key)
	outerCtx := outer.Context(t.Context())
	inner := t.LockUnder(outerCtx, l, key)
	innerCtx := inner.Context(outerCtx)
	t.Unlock(inner)
	t.Is(innerCtx.Err(), context.Canceled)
	t.NoError(outerCtx.Err(), "the outer lease's context")
	t.Open(inner.Lost(), "the inner lease's Lost")
	t.Unlock(outer)
	t.Is(outerCtx.Err(), context.Canceled)
}

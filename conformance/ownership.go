package conformance

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"time"

	"github.com/distlock/locker"
)

var ownershipCases = group("ownership", []Case{
	{Name: "LeaseDescribesItself", Rules: []string{"R3", "R9"}, Test: testLeaseDescribesItself,
		Contract: "Key, Owner, Holds and Deadline show what was granted; the deadline counts from before the command was sent, less the margin"},
	{Name: "OwnersAreUnique", Rules: []string{"R4"}, Locker: true, Test: testOwnersAreUnique,
		Contract: "every acquisition by an unnamed caller has an owner of its own"},
	{Name: "OwnerIsTheNameGiven", Rules: []string{"R4", "R5"}, Locker: true, Test: testOwnerIsTheNameGiven,
		Contract: "Owner is the name given by ContextWithOwner"},
	{Name: "BadOwnerIsInvalid", Rules: []string{"R17"}, Locker: true, Test: testBadOwnerIsInvalid,
		Contract: "an owner that is empty, longer than 1 KiB or not UTF-8 is ErrInvalid"},
	{Name: "SecondUnlockIsNotHeld", Rules: []string{"R3"}, Locker: true, Test: testSecondUnlockIsNotHeld,
		Contract: "after an Unlock that returned nil, Unlock and Renew return ErrNotHeld and do nothing to a later holder"},
	{Name: "UnlockAfterLossIsLostOnce", Rules: []string{"R2", "R3"}, Test: testUnlockAfterLossIsLostOnce,
		Contract: "the first Unlock of a lost lease returns ErrLost, the next ErrNotHeld"},
	{Name: "ConcurrentUnlocks", Rules: []string{"R3"}, Locker: true, Test: testConcurrentUnlocks,
		Contract: "of concurrent Unlocks of a lease exactly one returns nil, the others ErrNotHeld"},
	{Name: "ExpiredUnlockSparesSuccessor", Rules: []string{"R2"}, Test: testExpiredUnlockSparesSuccessor,
		Contract: "Unlock and Renew of an expired lease return ErrLost and leave the next holder alone"},
	{Name: "BrokenUnlockSparesSuccessor", Rules: []string{"R2"}, Needs: Capabilities{Break: true}, Test: testBrokenUnlockSparesSuccessor,
		Contract: "Unlock of a lease whose lock an operator deleted leaves the next holder alone"},
	{Name: "StolenUnlockSparesThief", Rules: []string{"R2"}, Needs: Capabilities{Break: true}, Test: testStolenUnlockSparesThief,
		Contract: "Renew and Unlock of a lease whose lock was replaced return ErrLost and leave the lock that is there"},
	{Name: "StolenRenewAddsNothing", Rules: []string{"R2", "R13"}, Needs: Capabilities{Break: true, Inspect: true}, Test: testStolenRenewAddsNothing,
		Contract: "renewals of a lease whose lock was replaced do not change the TTL of the lock that is there"},
	{Name: "UnlockNeedsNoContext", Rules: []string{"R20"}, Locker: true, Test: testUnlockNeedsNoContext,
		Contract: "Unlock under a context that is over frees the key"},
	{Name: "LockContextIsForTheWait", Rules: []string{"R20"}, Locker: true, Test: testLockContextIsForTheWait,
		Contract: "the end of the context given to Lock does not end the lease"},
	{Name: "LeaseIsSafeForConcurrentUse", Rules: []string{"R3"}, Test: testLeaseIsSafeForConcurrentUse,
		Contract: "every method of a lease may be called from many goroutines at once"},
	{Name: "StoreNamesHolder", Rules: []string{"R4"}, Needs: Capabilities{Inspect: true}, Test: testStoreNamesHolder,
		Contract: "the store shows a holder from grant to Unlock, another one for each grant, and none before and after"},
})

func testLeaseDescribesItself(t *T) {
	l, key := t.Locker(locker.WithPrefix(t.Key("prefix:"))), t.Key("k")
	ttl := t.Timing().TTL + t.Timing().Slack
	before := time.Now()
	lease := t.Lock(l, key, locker.WithTTL(ttl))
	after := time.Now()
	if lease.Key() != key {
		t.Errorf("Key is %q, not what Lock was given: %q", lease.Key(), key)
	}
	if lease.Owner() == "" {
		t.Errorf("Owner is empty")
	}
	if lease.Holds() != 1 {
		t.Errorf("Holds is %d after one Lock", lease.Holds())
	}
	margin := ttl/100 + 2*time.Millisecond
	if d := lease.Deadline(); d.After(after.Add(ttl - margin)) {
		t.Errorf("the deadline is %v after the grant: TTL %v less the margin %v is the most", d.Sub(after), ttl, margin)
	} else if d.Before(before.Add(ttl - 2*margin - t.Timing().Prompt)) {
		t.Errorf("the deadline is just %v after the call, for a TTL of %v", d.Sub(before), ttl)
	}
	t.Unlock(lease)
	if lease.Holds() != 0 {
		t.Errorf("Holds is %d after Unlock", lease.Holds())
	}
}

func testOwnersAreUnique(t *T) {
	ls, key := t.Lockers(2), t.Key("k")
	owners := map[string]bool{}
	for i := range 200 {
		lease := t.Lock(ls[i%2], key)
		if owners[lease.Owner()] {
			t.Fatalf("the owner %q came twice", lease.Owner())
		}
		owners[lease.Owner()] = true
		t.Unlock(lease)
	}
}

func testOwnerIsTheNameGiven(t *T) {
	l, key := t.Locker(), t.Key("k")
	for _, owner := range []string{"me", "{me}:1\n\x00", strings.Repeat("o", 1<<10)} {
		lease := t.LockUnder(locker.ContextWithOwner(t.Context(), owner), l, key)
		if lease.Owner() != owner {
			t.Errorf("Owner is %.40q, the caller was named %.40q", lease.Owner(), owner)
		}
		t.Taken(l, key)
		t.Unlock(lease)
	}
}

func testBadOwnerIsInvalid(t *T) {
	l, key := t.Locker(), t.Key("k")
	for _, owner := range []string{"", strings.Repeat("o", 1<<10+1), "\xff"} {
		ctx := locker.ContextWithOwner(t.Context(), owner)
		_, err := l.Lock(ctx, key)
		t.Is(err, locker.ErrInvalid)
		_, err = l.TryLock(ctx, key)
		t.Is(err, locker.ErrInvalid)
	}
	t.Free(l, key)
}

func testSecondUnlockIsNotHeld(t *T) {
	a, b, key := t.Locker(), t.Locker(), t.Key("k")
	lease := t.Lock(a, key)
	t.Unlock(lease)
	t.Is(lease.Unlock(t.Context()), locker.ErrNotHeld)
	next := t.TryLock(b, key)
	err := lease.Unlock(t.Context())
	t.Is(err, locker.ErrNotHeld)
	t.Isnt(err, locker.ErrLost)
	t.Is(lease.Renew(t.Context()), locker.ErrNotHeld)
	t.Taken(a, key)
	t.NoError(next.Renew(t.Context()), "Renew by the next holder")
	t.Unlock(next)
}

// lose gives a lease without renewal, and waits for its end.
func (t *T) lose(l locker.Locker, key string) *locker.Lease {
	t.Helper()
	lease := t.Lock(l, key, locker.WithTTL(t.Timing().ShortTTL), locker.WithoutRenewal())
	t.Ends(lease.Lost(), t.Timing().ShortTTL+t.Timing().Slack, "the loss of a lease that is not renewed")
	return lease
}

func testUnlockAfterLossIsLostOnce(t *T) {
	l, key := t.Locker(), t.Key("k")
	lease := t.lose(l, key)
	t.Is(lease.Unlock(t.Context()), locker.ErrLost)
	err := lease.Unlock(t.Context())
	t.Is(err, locker.ErrNotHeld)
	t.Isnt(err, locker.ErrLost)
	t.FreeWithin(t.Timing().PollWithin, l, key)
}

func testConcurrentUnlocks(t *T) {
	a, b, key := t.Locker(), t.Locker(), t.Key("k")
	for range 10 {
		lease := t.Lock(a, key)
		var ok, notHeld atomic.Int32
		t.Together(8, func(int) {
			switch err := lease.Unlock(t.Context()); {
			case err == nil:
				ok.Add(1)
			case errors.Is(err, locker.ErrNotHeld):
				notHeld.Add(1)
			default:
				t.Errorf("Unlock: %v", err)
			}
		})
		if ok.Load() != 1 || notHeld.Load() != 7 {
			t.Fatalf("of 8 Unlocks %d returned nil and %d ErrNotHeld", ok.Load(), notHeld.Load())
		}
		t.Free(b, key)
	}
}

func testExpiredUnlockSparesSuccessor(t *T) {
	a, b, c, key := t.Locker(), t.Locker(), t.Locker(), t.Key("k")
	stale := t.lose(a, key)
	next := t.Lock(b, key)
	t.Is(stale.Renew(t.Context()), locker.ErrLost)
	t.Is(stale.Unlock(t.Context()), locker.ErrLost)
	t.Taken(c, key)
	t.Taken(a, key)
	t.NoError(next.Renew(t.Context()), "Renew by the next holder")
	t.Unlock(next)
}

func testBrokenUnlockSparesSuccessor(t *T) {
	a, b, c, key := t.Locker(), t.Locker(), t.Locker(), t.Key("k")
	broken := t.Lock(a, key, locker.WithoutRenewal())
	t.NoError(t.breaker().Break(t.Context(), key), "breaking the lock")
	next := t.Lock(b, key)
	t.Is(broken.Unlock(t.Context()), locker.ErrLost)
	t.Taken(c, key)
	t.NoError(next.Renew(t.Context()), "Renew by the next holder")
	t.Unlock(next)
}

func testStolenUnlockSparesThief(t *T) {
	a, b, key := t.Locker(), t.Locker(), t.Key("k")
	for _, renew := range []bool{true, false} {
		lease := t.Lock(a, key, locker.WithoutRenewal())
		t.NoError(t.breaker().Steal(t.Context(), key), "stealing the lock")
		if renew {
			t.Is(lease.Renew(t.Context()), locker.ErrLost)
		}
		t.Is(lease.Unlock(t.Context()), locker.ErrLost)
		t.Taken(b, key)
		t.NoError(t.breaker().Break(t.Context(), key), "breaking the thief's lock")
	}
}

func testStolenRenewAddsNothing(t *T) {
	l, key := t.Locker(locker.WithRenewInterval(t.Timing().RenewEvery)), t.Key("k")
	lease := t.Lock(l, key, locker.WithTTL(time.Hour))
	t.NoError(t.breaker().Steal(t.Context(), key), "stealing the lock")
	thief, err := t.inspector().Holder(t.Context(), key)
	t.NoError(err, "looking for the holder")
	t.Ends(lease.Lost(), t.Timing().RenewEvery+t.Timing().Slack, "the loss of a stolen lease")
	t.Is(lease.Renew(t.Context()), locker.ErrLost)
	ttl, err := t.inspector().TTL(t.Context(), key)
	t.NoError(err, "looking for the TTL")
	if ttl <= 0 || ttl > 2*time.Minute {
		t.Errorf("the thief's lock has %v left, and was made for a minute", ttl)
	}
	t.Is(lease.Unlock(t.Context()), locker.ErrLost)
	if now, err := t.inspector().Holder(t.Context(), key); err != nil || now != thief {
		t.Errorf("the store names %q as holder, the thief is %q (%v)", now, thief, err)
	}
}

func testUnlockNeedsNoContext(t *T) {
	a, b, key := t.Locker(), t.Locker(), t.Key("k")
	dead, cancel := context.WithCancel(t.Context())
	cancel()
	lease := t.Lock(a, key)
	t.NoError(lease.Unlock(dead), "Unlock under a cancelled context")
	t.Free(b, key)

	late, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer cancel()
	lease = t.Lock(a, key)
	t.NoError(lease.Unlock(late), "Unlock under a context whose deadline has passed")
	t.Free(b, key)
}

func testLockContextIsForTheWait(t *T) {
	l, key := t.Locker(locker.WithRenewInterval(t.Timing().RenewEvery)), t.Key("k")
	ctx, cancel := context.WithCancel(t.Context())
	lease := t.LockUnder(ctx, l, key)
	cancel()
	deadline := lease.Deadline()
	t.Eventually(t.Timing().RenewEvery+t.Timing().Slack, "a renewal after the end of Lock's context", func() bool {
		return lease.Deadline().After(deadline)
	})
	t.Open(lease.Lost(), "Lost")
	t.NoError(lease.Context(t.Context()).Err(), "the lease's context")
	t.Taken(l, key)
	t.Unlock(lease)
}

func testLeaseIsSafeForConcurrentUse(t *T) {
	l, key := t.Locker(locker.WithRenewInterval(t.Timing().RenewEvery/10)), t.Key("k")
	for range 3 {
		lease := t.Lock(l, key)
		var unlocked atomic.Int32
		t.Together(8, func(i int) {
			for range 20 {
				_, _, _, _ = lease.Key(), lease.Owner(), lease.Token(), lease.Holds()
				_, _ = lease.Deadline(), lease.Lost()
				ctx := lease.Context(t.Context())
				_, _ = ctx.Err(), context.Cause(ctx)
				if inner, err := l.TryLock(ctx, key); err == nil {
					// Not under ctx, which ends when another one unlocks.
					t.Unlock(inner)
				}
				if err := lease.Renew(t.Context()); err != nil {
					t.Is(err, locker.ErrNotHeld)
				}
			}
			if lease.Unlock(t.Context()) == nil {
				unlocked.Add(1)
			}
		})
		if unlocked.Load() != 1 {
			t.Fatalf("%d Unlocks succeeded", unlocked.Load())
		}
		t.Open(lease.Lost(), "Lost")
		// Not at once: a re-entry whose caller's context had ended gives its hold
		// back in the background.
		t.FreeWithin(t.Timing().PollWithin, l, key)
	}
}

func testStoreNamesHolder(t *T) {
	l, key := t.Locker(), t.Key("k")
	holder := func() string {
		h, err := t.inspector().Holder(t.Context(), key)
		t.NoError(err, "looking for the holder")
		return h
	}
	if h := holder(); h != "" {
		t.Errorf("before the first Lock the store names %q", h)
	}
	last := ""
	for range 3 {
		lease := t.Lock(l, key)
		h := holder()
		if h == "" || h == last {
			t.Errorf("the store names %q; the holder before was %q", h, last)
		}
		last = h
		t.Unlock(lease)
		if h := holder(); h != "" {
			t.Errorf("after Unlock the store names %q", h)
		}
	}
}

package conformance

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/distlock/locker"
)

var ownerCases = group("owners", []Case{
	{Name: "OtherCallerIsExcluded", Rules: []string{"R6"}, Locker: true, Test: testOtherCallerIsExcluded,
		Contract: "a caller without the lease's context, or with another explicit owner, is excluded in the same process"},
	{Name: "ExplicitOwnerReenters", Rules: []string{"R5"}, Test: testExplicitOwnerReenters,
		Contract: "goroutines that name the same owner share its locks; the key is free when all have unlocked"},
	{Name: "ConcurrentReentry", Rules: []string{"R3", "R5"}, Test: testConcurrentReentry,
		Contract: "however goroutines of one owner interleave Locks and Unlocks, others stay out until the last Unlock, and then get in"},
	{Name: "SharedOwnerAcrossLockers", Rules: []string{"R8"}, Needs: Capabilities{StoredHolds: true}, Test: testSharedOwnerAcrossLockers,
		Contract: "where the store counts holds, the same explicit owner re-enters from another Locker, and others stay out until both have unlocked"},
	{Name: "SharedOwnerCounts", Rules: []string{"R8"}, Needs: Capabilities{StoredHolds: true}, Test: testSharedOwnerCounts,
		Contract: "holds that two Lockers add and give back in any order for one owner sum up: the key is free at 0 and not before"},
	{Name: "SharesEndApart", Rules: []string{"R8", "R2"}, Needs: Capabilities{StoredHolds: true}, Test: testSharesEndApart,
		Contract: "of two Lockers' shares of a key each has its own end: neither ends or shortens the other"},
	{Name: "OwnerIsExcludedElsewhere", Rules: []string{"R8"}, Without: Capabilities{StoredHolds: true}, Test: testOwnerIsExcludedElsewhere,
		Contract: "where the store does not count holds, the same explicit owner in another Locker is excluded"},
})

func testOtherCallerIsExcluded(t *T) {
	l, key := t.Locker(), t.Key("k")
	for _, ctx := range []context.Context{t.Context(), locker.ContextWithOwner(t.Context(), "a")} {
		lease := t.LockUnder(ctx, l, key)
		t.Taken(l, key)
		t.TakenUnder(locker.ContextWithOwner(t.Context(), "b"), l, key)
		// Naming another owner leaves the lease behind.
		t.TakenUnder(locker.ContextWithOwner(lease.Context(t.Context()), "b"), l, key)
		t.Unlock(lease)
	}
}

func testExplicitOwnerReenters(t *T) {
	l, other, key := t.Locker(), t.Locker(), t.Key("k")
	ctx := locker.ContextWithOwner(t.Context(), "me")
	first := t.LockUnder(ctx, l, key)
	var second *locker.Lease
	<-t.Go(func() { second = t.LockUnder(ctx, l, key) })
	if second == nil {
		t.FailNow()
	}
	if first.Holds() != 2 {
		t.Errorf("Holds is %d after two Locks", first.Holds())
	}
	t.Unlock(first)
	t.Taken(other, key)
	t.Taken(l, key)
	t.Unlock(second)
	t.Free(other, key)
}

func testConcurrentReentry(t *T) {
	l, other, key := t.Locker(), t.Locker(), t.Key("k")
	ctx := locker.ContextWithOwner(t.Context(), "me")
	var inside atomic.Int32
	for range 5 {
		t.Together(6, func(int) {
			for range 5 {
				lease := t.LockUnder(ctx, l, key)
				inside.Add(1)
				if foreign, err := other.TryLock(t.Context(), key); err == nil {
					t.Errorf("somebody else was granted the key with %d holds on it", inside.Load())
					_ = foreign.Unlock(t.Context())
				}
				inside.Add(-1)
				t.Unlock(lease)
			}
		})
		t.Free(other, key)
	}
}

func testSharedOwnerAcrossLockers(t *T) {
	a, b, other, key := t.Locker(), t.Locker(), t.Locker(), t.Key("k")
	ctx := locker.ContextWithOwner(t.Context(), "shared")
	for _, firstEndsFirst := range []bool{true, false} {
		first, second := t.LockUnder(ctx, a, key), t.LockUnder(ctx, b, key)
		if t.caps().Fencing && first.Token() != second.Token() {
			t.Errorf("re-entry from another Locker has token %d, not %d", second.Token(), first.Token())
		}
		t.Taken(other, key)
		t.Taken(b, key)
		if !firstEndsFirst {
			first, second = second, first
		}
		t.Unlock(first)
		t.Taken(other, key)
		t.NoError(second.Renew(t.Context()), "Renew by the one that is left")
		t.Unlock(second)
		t.Free(other, key)
	}
}

func testSharedOwnerCounts(t *T) {
	ls, other, key := t.Lockers(2), t.Locker(), t.Key("k")
	ctx := locker.ContextWithOwner(t.Context(), "shared")
	var held []*locker.Lease
	for step := 0; step < 60 || len(held) > 0; step++ {
		if len(held) == 0 || step < 60 && len(held) < 6 && t.IntN(2) == 0 {
			held = append(held, t.LockUnder(ctx, ls[t.IntN(2)], key))
		} else {
			i := t.IntN(len(held))
			t.Unlock(held[i])
			held[i] = held[len(held)-1]
			held = held[:len(held)-1]
		}
		if len(held) > 0 {
			t.Taken(other, key)
		} else {
			t.Free(other, key)
		}
	}
}

func testOwnerIsExcludedElsewhere(t *T) {
	a, b, key := t.Locker(), t.Locker(), t.Key("k")
	ctx := locker.ContextWithOwner(t.Context(), "shared")
	lease := t.LockUnder(ctx, a, key)
	t.TakenUnder(ctx, b, key)
	t.Unlock(lease)
	t.Unlock(t.LockUnder(ctx, b, key))
}

func testSharesEndApart(t *T) {
	ctx, ttl := locker.ContextWithOwner(t.Context(), "shared"), t.Timing().ShortTTL
	for name, shortFirst := range map[string]bool{"short first": true, "short second": false} {
		ls, other, key := t.Lockers(2), t.Locker(), t.Key(name)
		share := func(i int, ttl time.Duration) *locker.Lease {
			return t.LockUnder(ctx, ls[i], key, locker.WithTTL(ttl), locker.WithoutRenewal())
		}
		var short, long *locker.Lease
		if shortFirst {
			short = share(0, ttl)
			long = share(1, time.Minute)
		} else {
			long = share(1, time.Minute)
			short = share(0, ttl)
		}
		inner, err := ls[0].Lock(ctx, key, locker.WithTTL(ttl))
		if err == nil {
			err = inner.Unlock(t.Context())
		}
		if err != nil { // the short one has ended meanwhile
			t.Is(err, locker.ErrLost)
		}
		t.SleepPast(short.Deadline().Add(ttl / 10))
		t.Taken(other, key)
		t.Is(short.Unlock(t.Context()), locker.ErrLost)
		t.Taken(other, key)
		t.NoError(long.Renew(t.Context()), "Renew of the share that is left")
		t.Unlock(long)
		t.Free(other, key)
	}
}

package conformance

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/internal/test/pace"
)

var adminCases = group("admin", []Case{
	{Name: "InspectTellsHolder", Rules: []string{"R4", "R9"}, Needs: Capabilities{Admin: true}, Test: testInspectTellsHolder,
		Contract: "Inspect shows the owner, what is left of the lease, the token and since when, and that a key is free before and after"},
	{Name: "InspectTellsNamedOwner", Rules: []string{"R4"}, Needs: Capabilities{Admin: true, StoredHolds: true}, Test: testInspectTellsNamedOwner,
		Contract: "where the store keeps the owner, Inspect shows the name that the caller gave, and all its holds"},
	{Name: "MetadataIsKept", Rules: []string{"R1", "R4", "R6"}, Needs: Capabilities{Admin: true}, Test: testMetadataIsKept,
		Contract: "a lock of a Locker with metadata excludes, re-enters, is renewed and released like others, and Inspect shows the metadata"},
	{Name: "HoldersLists", Rules: []string{"R23"}, Needs: Capabilities{Admin: true}, Test: testHoldersLists,
		Contract: "Holders goes through the locks under the Locker's prefix that match the pattern, and no others, whatever characters a prefix has"},
	{Name: "ForceUnlockFrees", Rules: []string{"R10", "R15", "R21"}, Needs: Capabilities{Admin: true}, Test: testForceUnlockFrees,
		Contract: "after ForceUnlock the next caller gets the key, with a greater token; the holder's Lost closes by its next renewal, and its Unlock returns ErrLost"},
	{Name: "ForceUnlockWakes", Rules: []string{"R15"}, Needs: Capabilities{Admin: true, Notified: true}, Test: testForceUnlockWakes,
		Contract: "a waiter is woken by ForceUnlock, as by an Unlock"},
	{Name: "ForceUnlockSparesSuccessor", Rules: []string{"R2"}, Needs: Capabilities{Admin: true}, Test: testForceUnlockSparesSuccessor,
		Contract: "ForceUnlock of a holder that has given the key back since is ErrNotHeld, and leaves the next holder alone"},
	{Name: "ForceUnlockEndsShares", Rules: []string{"R8", "R10"}, Needs: Capabilities{Admin: true, StoredHolds: true}, Test: testForceUnlockEndsShares,
		Contract: "ForceUnlock of a lock that several Lockers hold for one owner takes it from all of them"},
	{Name: "ForceUnlockOfOwnLock", Rules: []string{"R10", "R14"}, Needs: Capabilities{Admin: true}, Test: testForceUnlockOfOwnLock,
		Contract: "a Locker that takes a lock from itself closes Lost at once, and its own waiters get the key"},
	{Name: "ForceUnlockOfThingsIsConflict", Rules: []string{"R23"}, Needs: Capabilities{Admin: true, Plant: true}, Test: testForceUnlockOfThingsIsConflict,
		Contract: "Inspect shows another program's locks as held, and returns ErrConflict for what is no lock; ForceUnlock of what a later lock may look like frees nothing"},
})

// admin returns the Client that l is or wraps.
func (t *T) admin(l locker.Locker) *locker.Client {
	t.Helper()
	a, ok := locker.ClientOf(l)
	if !ok {
		t.Fatalf("%T is no *locker.Client, and wraps none", l)
	}
	return a
}

func (t *T) inspect(l locker.Locker, key string) locker.Holder {
	t.Helper()
	h, err := t.admin(l).Inspect(t.Context(), key)
	t.NoError(err, "Inspect")
	if h.Key != key {
		t.Errorf("Inspect returned the key %q, want %q", h.Key, key)
	}
	return h
}

func testInspectTellsHolder(t *T) {
	prefix, key := t.Key("prefix:"), t.Key("k")
	l, other := t.Locker(locker.WithPrefix(prefix)), t.Locker(locker.WithPrefix(prefix))
	if h := t.inspect(other, key); h.Held || h.ID != "" || h.Owner != "" {
		t.Errorf("before the grant: %+v", h)
	}
	ttl, start := t.Timing().TTL+t.Timing().Slack, time.Now()
	lease := t.Lock(l, key, locker.WithTTL(ttl))
	h := t.inspect(other, key)
	switch {
	case !h.Held || h.ID == "" || h.Owner != lease.Owner():
		t.Errorf("held by %s: %+v", lease.Owner(), h)
	case h.Remaining <= 0 || h.Remaining > ttl+t.Timing().Granularity:
		t.Errorf("of a TTL of %v there remain %v", ttl, h.Remaining)
	case h.Token < lease.Token() || lease.Token() == 0 && h.Token != 0:
		t.Errorf("the token is %d, that of the lease %d", h.Token, lease.Token())
	case !h.Since.IsZero() && (h.Since.Before(start.Add(-t.Timing().Slack)) || h.Since.After(time.Now().Add(t.Timing().Slack))):
		t.Errorf("since %v, which is %v after the Lock", h.Since, h.Since.Sub(start))
	case len(h.Metadata) != 0:
		t.Errorf("metadata from nowhere: %v", h.Metadata)
	}
	t.Unlock(lease)
	if h := t.inspect(other, key); h.Held || h.ID != "" || h.Owner != "" {
		t.Errorf("after Unlock: %+v", h)
	}
}

func testInspectTellsNamedOwner(t *T) {
	a, b, key := t.Locker(), t.Locker(), t.Key("k")
	ctx := locker.ContextWithOwner(t.Context(), "the owner")
	first := t.LockUnder(ctx, a, key)
	again := t.LockUnder(ctx, a, key)
	second := t.LockUnder(ctx, b, key)
	if h := t.inspect(b, key); h.Owner != "the owner" || h.Holds != 3 || h.ID == "" {
		t.Errorf("held three times by %q: %+v", "the owner", h)
	}
	t.Unlock(again)
	t.Unlock(first)
	if h := t.inspect(a, key); h.Owner != "the owner" || h.Holds != 1 {
		t.Errorf("held once by %q: %+v", "the owner", h)
	}
	t.Unlock(second)
}

func testMetadataIsKept(t *T) {
	l, other, key := t.Locker(locker.WithMetadata("job", "a & b?c = d")), t.Locker(), t.Key("k")
	ctx := locker.ContextWithOwner(t.Context(), "the owner")
	for _, ctx := range []context.Context{t.Context(), ctx} {
		lease := t.LockUnder(ctx, l, key, locker.WithTTL(t.Timing().TTL))
		inner := t.LockUnder(lease.Context(ctx), l, key)
		t.Taken(other, key)
		h := t.inspect(other, key)
		if h.Metadata["job"] != "a & b?c = d" || h.Metadata["pid"] == "" {
			t.Errorf("the metadata is %v", h.Metadata)
		}
		t.Unlock(inner)
		w := t.Wait(l, key)
		t.NoError(lease.Renew(t.Context()), "Renew")
		if after := t.inspect(other, key); after.ID != h.ID {
			t.Errorf("held by %q before a renewal and %q after it", h.ID, after.ID)
		}
		t.Unlock(lease)
		t.Unlock(t.Granted(w, t.Timing().PollWithin))
		t.Free(other, key)
	}
}

func testHoldersLists(t *T) {
	name := t.Key("")
	l := t.Locker(locker.WithPrefix(name + "[a]*?\\:"))
	others := t.Locker(locker.WithPrefix(name))
	held := []*locker.Lease{t.Lock(others, "a-1:x/1")} // of which "[a]*?\" would be a pattern
	want := []string{}
	for i := range 3 {
		key := "x/" + strconv.Itoa(i)
		want = append(want, key)
		held = append(held, t.Lock(l, key), t.Lock(l, "y/"+strconv.Itoa(i)))
	}
	t.Unlock(t.Lock(l, "x/free"))
	got := []string{}
	for h, err := range t.admin(l).Holders(t.Context(), "x*") {
		t.NoError(err, "Holders")
		if !h.Held || h.Owner == "" {
			t.Errorf("listed as held: %+v", h)
		}
		got = append(got, h.Key)
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("Holders lists %q, of %q", got, want)
	}
	for _, err := range t.admin(l).Holders(t.Context(), "*") {
		t.NoError(err, "Holders")
		break // the loop can be left
	}
	for _, lease := range held {
		t.Unlock(lease)
	}
}

func testForceUnlockFrees(t *T) {
	l, operator, key := t.Locker(locker.WithRenewInterval(t.Timing().RenewEvery)), t.Locker(), t.Key("k")
	lease := t.Lock(l, key)
	t.NoError(t.admin(operator).ForceUnlock(t.Context(), t.inspect(operator, key)), "ForceUnlock")
	if h := t.inspect(operator, key); h.Held {
		t.Errorf("held after ForceUnlock: %+v", h)
	}
	next := t.TryLock(operator, key)
	t.newer(next.Token(), lease.Token())
	t.Ends(lease.Lost(), t.Timing().RenewEvery+t.Timing().Slack, "Lost")
	t.Is(lease.Unlock(t.Context()), locker.ErrLost)
	t.Taken(l, key)
	t.Unlock(next)
}

func testForceUnlockWakes(t *T) {
	holder, waiter, operator, key := t.Locker(), t.Locker(), t.Locker(), t.Key("k")
	var times []time.Duration
	for range 5 {
		t.Lock(holder, key)
		w := t.Wait(waiter, key)
		h := t.inspect(operator, key)
		if h.Waiting > 1 { // 0: the store does not tell
			t.Errorf("one waits: %+v", h)
		}
		start := pace.Now()
		t.NoError(t.admin(operator).ForceUnlock(t.Context(), h), "ForceUnlock")
		lease := t.Granted(w, t.Timing().PollWithin)
		times = append(times, start.Took())
		t.Unlock(lease)
		key += "."
	}
	t.Median("the grant after ForceUnlock", times, t.Timing().WakeWithin)
}

func testForceUnlockSparesSuccessor(t *T) {
	l, operator, key := t.Locker(), t.Locker(), t.Key("k")
	for _, ctx := range []context.Context{t.Context(), locker.ContextWithOwner(t.Context(), "the owner")} {
		lease := t.LockUnder(ctx, l, key)
		h := t.inspect(operator, key)
		t.Unlock(lease)
		t.Is(t.admin(operator).ForceUnlock(t.Context(), h), locker.ErrNotHeld)
		next := t.LockUnder(ctx, l, key)
		t.Is(t.admin(operator).ForceUnlock(t.Context(), h), locker.ErrNotHeld)
		t.Taken(operator, key)
		t.NoError(next.Renew(t.Context()), "Renew by the next holder")
		t.Unlock(next)
	}
}

func testForceUnlockEndsShares(t *T) {
	a, b, operator, key := t.Locker(), t.Locker(), t.Locker(), t.Key("k")
	ctx := locker.ContextWithOwner(t.Context(), "the owner")
	first := t.LockUnder(ctx, a, key)
	second := t.LockUnder(ctx, b, key)
	t.LockUnder(second.Context(ctx), b, key)
	t.NoError(t.admin(operator).ForceUnlock(t.Context(), t.inspect(operator, key)), "ForceUnlock")
	next := t.TryLock(operator, key)
	for _, lease := range []*locker.Lease{first, second} {
		t.Is(lease.Renew(t.Context()), locker.ErrLost)
		t.Is(lease.Unlock(t.Context()), locker.ErrLost)
	}
	t.Taken(a, key)
	t.Unlock(next)
}

func testForceUnlockOfOwnLock(t *T) {
	l, key := t.Locker(), t.Key("k")
	lease := t.Lock(l, key)
	w := t.Wait(l, key)
	t.NoError(t.admin(l).ForceUnlock(t.Context(), t.inspect(l, key)), "ForceUnlock")
	t.Ends(lease.Lost(), t.Timing().Slack, "Lost")
	next := t.Granted(w, t.Timing().PollWithin)
	t.Is(lease.Unlock(t.Context()), locker.ErrLost)
	t.Unlock(next)
}

func testForceUnlockOfThingsIsConflict(t *T) {
	l := t.Locker()
	p := must[Planter](t.h)
	for _, f := range p.Foreigners() {
		key := t.Key(strings.ReplaceAll(f.Name, " ", "-"))
		t.NoError(p.Plant(t.Context(), key, f.Name), "Plant")
		h, err := t.admin(l).Inspect(t.Context(), key)
		switch {
		case f.Conflict:
			t.Is(err, locker.ErrConflict)
			continue
		case err != nil || !h.Held:
			t.Errorf("Inspect of a lock of %s returned %+v, %v; want a holder", f.Name, h, err)
			continue
		case h.ID == "":
			t.Is(t.admin(l).ForceUnlock(t.Context(), h), locker.ErrConflict)
			t.intact(key, f)
			continue
		}
		t.NoError(t.admin(l).ForceUnlock(t.Context(), h), "ForceUnlock of "+f.Name)
		t.Free(l, key)
	}
}

package conformance

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/distlock/locker"
)

var fencingCases = group("fencing", []Case{
	{Name: "TokensIncrease", Rules: []string{"R21"}, Needs: Capabilities{Fencing: true}, Test: testTokensIncrease,
		Contract: "each grant of a key has a token greater than every earlier one, whichever Locker it is granted to"},
	{Name: "TokensIncreaseUnderContention", Rules: []string{"R21"}, Needs: Capabilities{Fencing: true}, Test: testTokensIncreaseUnderContention,
		Contract: "tokens increase in the order in which contenders get in"},
	{Name: "TokenIsStable", Rules: []string{"R6", "R21"}, Needs: Capabilities{Fencing: true}, Test: testTokenIsStable,
		Contract: "a holder keeps its token through renewals, re-entry and the failed tries of others"},
	{Name: "TokensFitEverywhere", Rules: []string{"R21"}, Needs: Capabilities{Fencing: true}, Test: testTokensFitEverywhere,
		Contract: "a token is positive and below 2^53, so that it survives JSON and every database"},
	{Name: "TokensPerKey", Rules: []string{"R21"}, Needs: Capabilities{Fencing: true}, Test: testTokensPerKey,
		Contract: "tokens of a key increase whatever is granted on other keys meanwhile"},
	{Name: "TokenAfterExpiry", Rules: []string{"R21"}, Needs: Capabilities{Fencing: true}, Test: testTokenAfterExpiry,
		Contract: "the token after an expired lease is greater than that lease's"},
	{Name: "TokenAfterBreak", Rules: []string{"R21"}, Needs: Capabilities{Fencing: true, Break: true}, Test: testTokenAfterBreak,
		Contract: "the token after a lock that was deleted or ended early is greater than that lock's"},
	{Name: "TokenAfterDataLoss", Rules: []string{"R21"}, Needs: Capabilities{Fencing: true, Break: true}, Isolated: true, Fault: true, Test: testTokenAfterDataLoss,
		Contract: "after the store lost everything tokens are greater than those it gave before"},
	{Name: "StaleWriterIsRefused", Rules: []string{"R21"}, Needs: Capabilities{Fencing: true}, Test: testStaleWriterIsRefused,
		Contract: "a resource that refuses smaller tokens than it has seen is safe from a holder that slept through its lease's end"},
	{Name: "WithoutFencingIsZero", Rules: []string{"R21"}, Test: testWithoutFencingIsZero,
		Contract: "WithoutFencing, Token is 0; others that use the key keep tokens that increase"},
	{Name: "ZeroWithoutSupport", Rules: []string{"R21"}, Without: Capabilities{Fencing: true}, Test: testZeroWithoutSupport,
		Contract: "a strategy that issues no tokens says 0"},
	{Name: "WithoutFencingKeepsNothing", Rules: []string{"R21", "R24"}, Needs: Capabilities{Inspect: true}, Isolated: true, Test: testWithoutFencingKeepsNothing,
		Contract: "WithoutFencing nothing is in the store after a lock was used without contention"},
	{Name: "TokenKeyExpires", Rules: []string{"R21", "R24"}, Needs: Capabilities{Fencing: true, Inspect: true}, Isolated: true, Test: testTokenKeyExpires,
		Contract: "what the store keeps for tokens is at most one key for each lock key, and it expires"},
	{Name: "TokenAfterLostReply", Rules: []string{"R19", "R21"}, Needs: Capabilities{Fencing: true, Faults: true}, Isolated: true, Test: testTokenAfterLostReply,
		Contract: "tokens increase across grants whose replies were lost or that were applied twice"},
})

func testTokensIncrease(t *T) {
	ls, key := t.Lockers(3), t.Key("k")
	var last int64
	for range 60 {
		lease := t.Lock(ls[t.IntN(len(ls))], key)
		last = t.newer(lease.Token(), last)
		t.Unlock(lease)
	}
}

func testTokensIncreaseUnderContention(t *T) {
	ls, key := t.Lockers(3), t.Key("k")
	var mu sync.Mutex
	var tokens []int64
	t.contend(ls, 2, 6, func(l locker.Locker) *locker.Lease { return t.Lock(l, key) }, func(lease *locker.Lease) {
		mu.Lock()
		defer mu.Unlock()
		tokens = append(tokens, lease.Token())
	})
	t.increase(tokens)
}

// increase checks that tokens, in the order of their grants, do.
func (t *T) increase(tokens []int64) {
	t.Helper()
	if t.caps().Fencing && (!slices.IsSorted(tokens) || len(slices.Compact(slices.Clone(tokens))) != len(tokens)) {
		t.Errorf("in the order of the grants the tokens are %d", tokens)
	}
}

func testTokenIsStable(t *T) {
	a, b, key := t.Locker(), t.Locker(), t.Key("k")
	lease := t.Lock(a, key)
	token := lease.Token()
	check := func(l *locker.Lease, when string) {
		if l.Token() != token {
			t.Errorf("%s the token is %d, it was %d", when, l.Token(), token)
		}
	}
	t.NoError(lease.Renew(t.Context()), "Renew")
	check(lease, "after Renew")
	for range 10 {
		t.Taken(b, key)
	}
	check(lease, "after failed tries")
	inner := t.LockUnder(lease.Context(t.Context()), a, key)
	check(inner, "of an inner lease")
	check(lease, "after re-entry")
	t.Unlock(inner)
	check(lease, "after an inner Unlock")
	t.Unlock(lease)
	check(lease, "after Unlock")
	t.newer(t.Lock(b, key).Token(), token)
}

func testTokensFitEverywhere(t *T) {
	l, key := t.Locker(), t.Key("k")
	for range 5 {
		lease := t.Lock(l, key)
		if token := lease.Token(); token <= 0 || token >= 1<<53 {
			t.Errorf("the token is %d", token)
		}
		t.Unlock(lease)
	}
}

func testTokensPerKey(t *T) {
	l, a, b := t.Locker(), t.Key("a"), t.Key("b")
	var last int64
	for range 10 {
		lease := t.Lock(l, a)
		last = t.newer(lease.Token(), last)
		for range 5 {
			t.Unlock(t.Lock(l, b))
		}
		t.Unlock(lease)
	}
}

func testTokenAfterExpiry(t *T) {
	a, b, key := t.Locker(), t.Locker(), t.Key("k")
	for range 2 {
		expired := t.lose(a, key)
		next := t.Lock(b, key)
		t.newer(next.Token(), expired.Token())
		t.Unlock(next)
	}
}

func testTokenAfterBreak(t *T) {
	a, b, key := t.Locker(), t.Locker(), t.Key("k")
	var last int64
	for i := range 6 {
		lease := t.Lock([]locker.Locker{a, b}[i%2], key, locker.WithoutRenewal())
		last = t.newer(lease.Token(), last)
		if i%3 == 0 {
			t.NoError(t.breaker().Expire(t.Context(), key), "ending the lease")
		} else {
			t.NoError(t.breaker().Break(t.Context(), key), "breaking the lock")
		}
		t.Is(lease.Unlock(t.Context()), locker.ErrLost)
	}
}

func testTokenAfterDataLoss(t *T) {
	l, key := t.Locker(), t.Key("k")
	var last int64
	for range 5 {
		for range 10 {
			lease := t.Lock(l, key)
			last = t.newer(lease.Token(), last)
			t.Unlock(lease)
		}
		t.NoError(t.breaker().Flush(t.Context()), "losing everything")
	}
}

func testStaleWriterIsRefused(t *T) {
	a, b, key := t.Locker(), t.Locker(), t.Key("k")
	var seen atomic.Int64
	write := func(token int64) bool {
		for {
			last := seen.Load()
			if token < last {
				return false
			}
			if seen.CompareAndSwap(last, token) {
				return true
			}
		}
	}
	sleeper := t.Lock(a, key, locker.WithTTL(t.Timing().ShortTTL), locker.WithoutRenewal())
	if !write(sleeper.Token()) {
		t.Errorf("the holder's first write was refused")
	}
	next := t.Lock(b, key)
	if !write(next.Token()) {
		t.Errorf("the next holder's write was refused")
	}
	if write(sleeper.Token()) {
		t.Errorf("a write of the holder that slept was let through")
	}
	t.Unlock(next)
}

func testWithoutFencingIsZero(t *T) {
	with, without, key := t.Locker(), t.Locker(locker.WithoutFencing()), t.Key("k")
	var last int64
	for range 3 {
		lease := t.Lock(without, key)
		inner := t.LockUnder(lease.Context(t.Context()), without, key)
		if lease.Token() != 0 || inner.Token() != 0 {
			t.Errorf("the tokens are %d and %d", lease.Token(), inner.Token())
		}
		t.Taken(with, key)
		t.Unlock(inner)
		t.Unlock(lease)

		fenced := t.Lock(with, key)
		last = t.newer(fenced.Token(), last)
		t.Taken(without, key)
		t.Unlock(fenced)
	}
}

func testZeroWithoutSupport(t *T) {
	l, key := t.Locker(), t.Key("k")
	for range 2 {
		lease := t.Lock(l, key)
		if lease.Token() != 0 {
			t.Errorf("the token is %d", lease.Token())
		}
		t.Unlock(lease)
	}
}

// newKeys lists what is in the store and was not before.
func (t *T) newKeys(before []StoredKey) []StoredKey {
	t.Helper()
	return slices.DeleteFunc(t.storedKeys(), func(k StoredKey) bool {
		return slices.ContainsFunc(before, func(b StoredKey) bool { return b.Name == k.Name })
	})
}

// leftWithin waits until the store has at most n things that were not there before.
func (t *T) leftWithin(d time.Duration, n int, before []StoredKey) (left []StoredKey) {
	t.Helper()
	defer func() {
		if len(left) > n {
			t.Logf("left in the store, where at most %d things may be: %v", n, left)
		}
	}()
	t.Eventually(d, fmt.Sprintf("at most %d things are left in the store", n), func() bool {
		left = t.newKeys(before)
		return len(left) <= n
	})
	return left
}

func (t *T) storedKeys() []StoredKey {
	t.Helper()
	keys, err := t.inspector().Keys(t.Context())
	t.NoError(err, "listing the store")
	return keys
}

func testWithoutFencingKeepsNothing(t *T) {
	l := t.Locker(locker.WithoutFencing())
	before := t.storedKeys()
	for _, name := range []string{"a", "b", "c"} {
		t.Unlock(t.Lock(l, t.Key(name)))
	}
	t.leftWithin(t.Timing().Settle, 0, before)
}

func testTokenKeyExpires(t *T) {
	l := t.Locker()
	before := t.storedKeys()
	names := []string{"a", "b", "c"}
	for _, name := range names {
		for range 3 {
			t.Unlock(t.Lock(l, t.Key(name)))
		}
	}
	for _, k := range t.leftWithin(t.Timing().Settle, len(names), before) {
		if k.TTL <= 0 || k.TTL > 24*time.Hour {
			t.Errorf("%q is kept for %v", k.Name, k.TTL)
		}
	}
}

func testTokenAfterLostReply(t *T) {
	l, key := t.Locker(), t.Key("k")
	var last int64
	for i := range 6 {
		switch i % 3 {
		case 0:
			t.NoError(t.faults().LoseReply(OpAcquire), "losing a reply")
		case 1:
			t.NoError(t.faults().Repeat(OpAcquire), "repeating a command")
		}
		lease := t.Lock(l, key)
		last = t.newer(lease.Token(), last)
		t.Unlock(lease)
	}
}

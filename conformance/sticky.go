package conformance

import (
	"errors"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/driver"
	"github.com/distlock/locker/internal/test/pace"
)

var stickyCases = group("signals", []Case{
	{Name: "StickyPairs", Rules: []string{"R21", "R27"}, Needs: Capabilities{Sticky: true}, Test: testStickyPairs,
		Contract: "a Locker WithSticky keeps what it has unlocked, and gives it out again with greater tokens; unused it gives the key back"},
	{Name: "StickyGivesWay", Rules: []string{"R21", "R27"}, Needs: Capabilities{Sticky: true}, Test: testStickyGivesWay,
		Contract: "Lock and TryLock of another Locker get a lock that nobody uses long before its holder would give it up by itself, whatever the key, and with a greater token"},
	{Name: "StickyHolderIsAsked", Rules: []string{"R1", "R27"}, Needs: Capabilities{Sticky: true}, Test: testStickyHolderIsAsked,
		Contract: "what somebody uses is not given up, and its Unlock frees the key while others wait"},
	{Name: "StickyHeedsRequests", Rules: []string{"R27"}, Needs: Capabilities{Sticky: true}, Test: testStickyHeedsRequests,
		Contract: "RequestRelease frees a lock that nobody uses"},
	{Name: "StickyEndsSoon", Rules: []string{"R9", "R27"}, Needs: Capabilities{Sticky: true}, Test: testStickyEndsSoon,
		Contract: "a lock that may be kept lasts for 3 s at most, whatever the TTL, until it is renewed: a process that dies leaves it for as long"},
	{Name: "StickyOddSignals", Rules: []string{"R27"}, Needs: Capabilities{Sticky: true, Drivers: true}, Test: testStickyOddSignals,
		Contract: "signals that are late, repeated or forged take nothing from those who use it"},
	{Name: "StickyCloses", Rules: []string{"R24", "R27"}, Needs: Capabilities{Sticky: true}, Test: testStickyCloses,
		Contract: "Close frees what nobody uses"},
})

const (
	// longSticky is the longest time for which a lock is kept.
	longSticky = time.Second
	// calmTTL is so long that no renewal is due meanwhile, at which a lock that nobody uses is given up.
	calmTTL = 6 * longSticky
)

// keeps locks key by l until l keeps the lock, as it does once it listens, and returns the last token.
// The lock, which is kept until longSticky after its grant, stays for most of that from then on, unless it is asked for.
func (t *T) keeps(l, other locker.Locker, key string) (token int64) {
	t.Helper()
	t.Eventually(t.Timing().Patience, "the Locker keeps the lock", func() bool {
		granted := time.Now()
		lease := t.Lock(l, key)
		token = lease.Token()
		t.Unlock(lease)
		if t.inspect(other, key).Held {
			if time.Since(granted) < longSticky/5 {
				return true
			}
			t.freed(other, key, "an unused lock is given back")
		}
		time.Sleep(5 * time.Millisecond) // a poll: no event shows that the Locker listens
		return false
	})
	return token
}

// freed waits until nobody has the key. It asks for nothing.
func (t *T) freed(l locker.Locker, key, why string) {
	t.Helper()
	t.Eventually(t.Timing().Patience, why, func() bool { return !t.inspect(l, key).Held })
}

// early lets a, whose TTL is calmTTL, keep the lock, and frees it before a would give it up by itself; last is a's token.
// Where the machine was too slow to show that, it begins again.
func (t *T) early(a, b locker.Locker, key string, free func(last int64)) {
	t.Helper()
	const most = longSticky * 7 / 10
	t.Eventually(t.Timing().Patience, "a lock that is asked for is free before its holder gives it up by itself", func() bool {
		last, start := t.keeps(a, b, key), pace.Now()
		free(last)
		took, paced := time.Since(start.Time), start.Took()
		if paced > most {
			t.Errorf("it took %v for key %q; want less: the holder would have kept it for %v", paced, key, longSticky)
		}
		return took <= most || paced > most
	})
}

func testStickyPairs(t *T) {
	a, b, key := t.Locker(locker.WithSticky(longSticky)), t.Locker(), t.Key("k")
	last := t.keeps(a, b, key)
	for i := range 600 {
		take := a.Lock
		if i%2 == 0 {
			take = a.TryLock
		}
		lease, err := take(t.Context(), key)
		t.NoError(err, "Lock of a kept key")
		last = t.newer(lease.Token(), last)
		t.NoError(lease.Err(), "Err")
		t.Unlock(lease)
	}
	t.freed(b, key, "an unused lock is given back")
	lease := t.Lock(b, key)
	t.newer(lease.Token(), last)
	t.Unlock(lease)
}

func testStickyGivesWay(t *T) {
	a, b := t.Locker(locker.WithSticky(longSticky), locker.WithTTL(calmTTL)), t.Locker()
	for i, name := range []string{"k", "{a}b", "}x", "a b", "\x00\n\t", "ü?&=%"} {
		key := t.Key(name)
		take := b.Lock
		if i%2 == 1 {
			take = b.TryLock
		}
		t.early(a, b, key, func(last int64) {
			start := pace.Now()
			lease, err := take(t.Context(), key)
			for errors.Is(err, locker.ErrNotAcquired) && start.Took() < longSticky { // the holder is slow to answer
				lease, err = take(t.Context(), key)
			}
			t.NoError(err, "a lock that nobody uses")
			t.newer(lease.Token(), last)
			t.Unlock(lease)
		})
	}
}

func testStickyHolderIsAsked(t *T) {
	a, b, key := t.Locker(locker.WithSticky(longSticky)), t.Locker(), t.Key("k")
	t.keeps(a, b, key)
	lease := t.Lock(a, key)
	t.Taken(b, key)
	w := t.Wait(b, key)
	t.Unlock(lease)
	next := t.Granted(w, t.Timing().Patience)
	t.newer(next.Token(), lease.Token())
	t.Taken(a, key)
	t.Unlock(next)
}

func testStickyHeedsRequests(t *T) {
	a, b, key := t.Locker(locker.WithSticky(longSticky), locker.WithTTL(calmTTL)), t.Locker(), t.Key("k")
	t.early(a, b, key, func(int64) {
		if err := t.admin(b).RequestRelease(t.Context(), key); err != nil {
			t.Is(err, locker.ErrNotHeld) // it was given up by itself
		}
		t.freed(b, key, "what was asked for is free")
	})
}

func testStickyEndsSoon(t *T) {
	a, b, key := t.Locker(locker.WithSticky(longSticky)), t.Locker(), t.Key("k")
	for range 3 {
		t.keeps(a, b, key)
		if h := t.inspect(b, key); h.Held && h.Remaining > 3*time.Second+t.Timing().Granularity {
			t.Errorf("the store keeps the key for %v, which nobody uses; want 3 s at most", h.Remaining)
		}
		t.freed(b, key, "an unused lock is given back")
	}
}

func testStickyOddSignals(t *T) {
	a, b, key := t.Locker(locker.WithSticky(longSticky)), t.Locker(), t.Key("k")
	d := t.signaller()
	t.keeps(a, b, key)
	late := t.inspect(b, key).ID
	t.Unlock(t.Lock(b, key))
	lease := t.Lock(a, key)
	for _, id := range []string{late, late, t.inspect(b, key).ID, t.inspect(b, key).ID} {
		if _, ok := driver.LockerOf(id); ok {
			t.NoError(d.Signal(t.Context(), driver.Signal{Kind: driver.SignalWaiting, Key: key, Claim: id}), "Signal")
		}
	}
	t.NoError(lease.Renew(t.Context()), "Renew")
	t.Taken(b, key)
	t.Unlock(lease)
	t.FreeWithin(t.Timing().Patience, b, key)
}

func testStickyCloses(t *T) {
	a, b := t.Locker(locker.WithSticky(longSticky)), t.Locker()
	first, second := t.Key("a"), t.Key("b")
	t.keeps(a, b, first)
	t.keeps(a, b, second)
	t.NoError(a.Close(), "Close")
	for _, key := range []string{first, second} {
		if h := t.inspect(b, key); h.Held {
			t.Errorf("%q is held after Close, and nobody uses it", key)
		}
	}
}

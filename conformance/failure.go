package conformance

import (
	"errors"
	"strconv"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/distlock/locker"
	"github.com/distlock/locker/conformance/internal/suite"
)

var failureCases = group("failure", []Case{
	{Name: "AcquireReplyLost", Rules: []string{"R17", "R19"}, Needs: Capabilities{Faults: true}, Isolated: true, Test: testAcquireReplyLost,
		Contract: "Lock whose reply was lost gets the key nevertheless, once, and long before the TTL"},
	{Name: "TryLockReplyLost", Rules: []string{"R17", "R19"}, Needs: Capabilities{Faults: true}, Isolated: true, Test: testTryLockReplyLost,
		Contract: "TryLock whose reply was lost is ErrUnavailable, and what it may have got is cleaned up at once"},
	{Name: "AcquireTwice", Rules: []string{"R19"}, Needs: Capabilities{Faults: true}, Isolated: true, Test: testAcquireTwice,
		Contract: "an acquisition that reached the store twice is one: one Unlock frees the key"},
	{Name: "CancelledInFlight", Rules: []string{"R16", "R20"}, Needs: Capabilities{Faults: true, Inspect: true}, Isolated: true, Test: testCancelledInFlight,
		Contract: "a Lock cancelled while its command is on the way returns at once, and what it got is cleaned up, not renewed"},
	{Name: "RenewReplyLost", Rules: []string{"R11", "R19"}, Needs: Capabilities{Faults: true}, Isolated: true, Test: testRenewReplyLost,
		Contract: "Renew whose reply was lost is ErrUnavailable and leaves the lease as it was; the watchdog just tries again"},
	{Name: "RenewTwice", Rules: []string{"R19"}, Needs: Capabilities{Faults: true}, Isolated: true, Test: testRenewTwice,
		Contract: "a renewal that reached the store twice is like one"},
	{Name: "ReleaseReplyLost", Rules: []string{"R3", "R19"}, Needs: Capabilities{Faults: true}, Isolated: true, Test: testReleaseReplyLost,
		Contract: "Unlock whose reply was lost frees the key, is not taken for a loss, and spares the next holder when it is repeated"},
	{Name: "ReleaseTwice", Rules: []string{"R4", "R19"}, Needs: Capabilities{Faults: true}, Isolated: true, Test: testReleaseTwice,
		Contract: "a release that reached the store twice frees the key and spares the next holder"},
	{Name: "ReentryReplyLost", Rules: []string{"R8", "R19"}, Needs: Capabilities{Faults: true, StoredHolds: true}, Isolated: true, Test: testReentryReplyLost,
		Contract: "the count in the store is right after replies to re-entries and inner Unlocks were lost"},
	{Name: "ReentryTwice", Rules: []string{"R8", "R19"}, Needs: Capabilities{Faults: true, StoredHolds: true}, Isolated: true, Test: testReentryTwice,
		Contract: "the count in the store is right after re-entries and inner Unlocks reached it twice"},
	{Name: "LinearizableUnderFaults", Rules: []string{"R1", "R2", "R19", "R21"}, Needs: Capabilities{Faults: true}, Isolated: true, Test: testLinearizableUnderFaults,
		Contract: "with replies lost and commands repeated the answers are still those of a mutex, where an answer that did not come may mean either"},
	{Name: "StoreLosesEverything", Rules: []string{"R10", "R11"}, Needs: Capabilities{Break: true}, Isolated: true, Fault: true, Test: testStoreLosesEverything,
		Contract: "when the store loses its data holders know it at the next renewal, and the keys can be locked again"},
	{Name: "ScriptsForgotten", Rules: []string{"R17"}, Needs: Capabilities{Faults: true, Scripts: true}, Isolated: true, Test: testScriptsForgotten,
		Contract: "every operation works when the store has forgotten the scripts it knew"},
})

func testAcquireReplyLost(t *T) {
	a, b, key := t.Locker(), t.Locker(), t.Key("k")
	for range 3 {
		t.NoError(t.faults().LoseReply(OpAcquire), "losing a reply")
		// So long that waiting for the end of what the first attempt got fails.
		lease := t.Lock(a, key, locker.WithTTL(time.Hour))
		t.Taken(b, key)
		// Past the clean-up of the first attempt, which must not hit this one.
		t.Sleep(t.Timing().ShortTTL)
		t.Taken(b, key)
		if lease.Holds() != 1 {
			t.Errorf("Holds is %d", lease.Holds())
		}
		t.Unlock(lease)
		t.Free(b, key)
	}
}

func testTryLockReplyLost(t *T) {
	a, b, key := t.Locker(), t.Locker(), t.Key("k")
	for range 3 {
		t.NoError(t.faults().LoseReply(OpAcquire), "losing a reply")
		_, err := a.TryLock(t.Context(), key, locker.WithTTL(time.Hour))
		t.unavailable(err)
		t.FreeWithin(t.Timing().PollWithin, b, key)
		t.Free(a, key)
	}
}

func testAcquireTwice(t *T) {
	a, b, key := t.Locker(), t.Locker(), t.Key("k")
	t.Unlock(t.Lock(a, key))
	var before []StoredKey // with what is kept for tokens
	_, looks := upgrade[Inspector](t.h)
	if looks {
		before = t.storedKeys()
	}
	for _, lock := range []func() *locker.Lease{
		func() *locker.Lease { return t.Lock(a, key) },
		func() *locker.Lease { return t.TryLock(a, key) },
	} {
		t.NoError(t.faults().Repeat(OpAcquire), "repeating a command")
		lease := lock()
		if lease.Holds() != 1 {
			t.Errorf("Holds is %d", lease.Holds())
		}
		t.Taken(b, key)
		t.Unlock(lease)
		t.Free(b, key)
	}
	if looks {
		t.leftWithin(t.Timing().SignalLife, 0, before)
	}
}

func testCancelledInFlight(t *T) {
	delay := t.Timing().Slack
	var events suite.EventLog
	a, b, key := t.Locker(suite.WithObserver(&events)), t.Locker(), t.Key("k")
	t.NoError(t.faults().DelayReply(OpAcquire, delay), "delaying a reply")
	w := t.Start(a, key, locker.WithTTL(time.Hour))
	t.Eventually(t.Timing().Slack, "the store has granted the key", func() bool {
		holder, err := t.inspector().Holder(t.Context(), key)
		t.NoError(err, "looking for the holder")
		return holder != ""
	})
	w.Cancel()
	_ = t.Refused(w, t.Timing().Prompt)
	t.FreeWithin(delay+t.Timing().PollWithin, b, key)
	if events.Count(locker.EventAcquired) != 0 {
		t.Errorf("there is an event of a grant that nobody got")
	}
}

func testRenewReplyLost(t *T) {
	every := t.Timing().RenewEvery
	var events suite.EventLog
	a, b, key := t.Locker(suite.WithObserver(&events), locker.WithRenewInterval(every)), t.Locker(), t.Key("k")
	lease := t.Lock(a, key, locker.WithoutRenewal())
	before := lease.Deadline()
	t.NoError(t.faults().LoseReply(OpRenew), "losing a reply")
	err := lease.Renew(t.Context())
	t.Is(err, locker.ErrUnavailable)
	t.Isnt(err, locker.ErrLost)
	if d := lease.Deadline(); !d.Equal(before) {
		t.Errorf("a Renew without an answer moved the deadline by %v", d.Sub(before))
	}
	t.NoError(lease.Renew(t.Context()), "Renew")
	t.Taken(b, key)
	t.Unlock(lease)

	lease = t.Lock(a, key)
	t.NoError(t.faults().LoseReply(OpRenew), "losing a reply")
	t.Eventually(2*every+t.Timing().Slack, "a renewal fails", func() bool { return events.Count(locker.EventRenewFailed) > 0 })
	n := events.Count(locker.EventRenewed)
	t.Eventually(2*every+t.Timing().Slack, "a renewal succeeds again", func() bool { return events.Count(locker.EventRenewed) > n })
	t.Open(lease.Lost(), "Lost")
	t.Unlock(lease)
}

func testRenewTwice(t *T) {
	a, b, key := t.Locker(), t.Locker(), t.Key("k")
	lease := t.Lock(a, key)
	t.NoError(t.faults().Repeat(OpRenew), "repeating a command")
	t.NoError(lease.Renew(t.Context()), "Renew")
	t.Taken(b, key)
	t.Unlock(lease)
	t.Free(b, key)
}

func testReleaseReplyLost(t *T) {
	a, b, c, key := t.Locker(), t.Locker(), t.Locker(), t.Key("k")
	for range 3 {
		lease := t.Lock(a, key)
		w := t.Wait(b, key)
		t.NoError(t.faults().LoseReply(OpRelease), "losing a reply")
		err := lease.Unlock(t.Context())
		if err != nil {
			t.Is(err, locker.ErrUnavailable)
		}
		next := t.Granted(w, t.Timing().PollWithin)
		if again := lease.Unlock(t.Context()); err == nil {
			t.Is(again, locker.ErrNotHeld)
		} else {
			t.NoError(again, "the second Unlock")
		}
		t.Taken(c, key)
		t.Unlock(next)
	}
}

func testReleaseTwice(t *T) {
	a, b, c, key := t.Locker(), t.Locker(), t.Locker(), t.Key("k")
	for range 3 {
		lease := t.Lock(a, key)
		w := t.Wait(b, key)
		t.NoError(t.faults().Repeat(OpRelease), "repeating a command")
		// The reply that counts may be the one to the second, which found
		// nothing.
		if err := lease.Unlock(t.Context()); err != nil {
			t.Is(err, locker.ErrLost)
		}
		next := t.Granted(w, t.Timing().PollWithin)
		t.NoError(t.faults().Heal(), "ending the fault") // of several servers one may not have had a release
		t.Taken(c, key)
		t.Unlock(next)
		t.Free(c, key)
	}
}

// counted checks holds in the store: inner is unlocked under arm's fault, then
// outer, and nobody gets in before.
func (t *T) counted(a, other locker.Locker, key string, arm func(Op) error) {
	t.Helper()
	outer := t.Lock(a, key)
	t.NoError(arm(OpSetHolds), "arranging a fault")
	inner := t.LockUnder(outer.Context(t.Context()), a, key)
	if outer.Holds() != 2 {
		t.Errorf("Holds is %d after two Locks", outer.Holds())
	}
	t.NoError(arm(OpSetHolds), "arranging a fault")
	if err := inner.Unlock(t.Context()); err != nil {
		t.Is(err, locker.ErrUnavailable)
		t.NoError(inner.Unlock(t.Context()), "the second Unlock of an inner lease")
	}
	t.Taken(other, key)
	t.NoError(outer.Renew(t.Context()), "Renew")
	t.Unlock(outer)
	t.Free(other, key)
}

func testReentryReplyLost(t *T) {
	a, other, key := t.Locker(), t.Locker(), t.Key("k")
	for range 3 {
		t.counted(a, other, key, t.faults().LoseReply)
	}
	// TryLock does not try twice: what its command may have done is undone.
	outer := t.Lock(a, key)
	t.NoError(t.faults().LoseReply(OpSetHolds), "losing a reply")
	inner, err := a.TryLock(outer.Context(t.Context()), key)
	if err == nil {
		t.Unlock(inner)
	} else {
		t.Is(err, locker.ErrUnavailable)
	}
	t.Taken(other, key)
	t.Unlock(outer)
	t.Free(other, key)
}

func testReentryTwice(t *T) {
	a, other, key := t.Locker(), t.Locker(), t.Key("k")
	for range 3 {
		t.counted(a, other, key, t.faults().Repeat)
	}
}

func testLinearizableUnderFaults(t *T) {
	ls := t.Lockers(4)
	t.linearizableUnderFaults(histModel, !t.caps().Quorum, func(client int, key string) attempt { return tryLock(t, ls[client], key) })
}

// linearizableUnderFaults checks the histories of four clients, whose attempts at a key are each other's rivals.
func (t *T) linearizableUnderFaults(model porcupine.Model, strict bool, of func(client int, key string) attempt) {
	t.Helper()
	faults := func(op Op) {
		switch n := t.IntN(6); {
		case n == 0:
			t.NoError(t.faults().LoseReply(op), "losing a reply")
		case n == 1 && op != OpRelease: // the second finds nothing, and says so
			t.NoError(t.faults().Repeat(op), "repeating a command")
		}
	}
	// Several short histories: each operation without an answer may take effect at
	// any later time, and a long history has too many orders to decide.
	for round := range 8 {
		h, key := newHistory(model), t.Key(strconv.Itoa(round))
		t.Together(4, func(client int) { t.historyClient(h, client, strict, of(client, key), 6, faults) })
		h.check(t)
	}
}

func testStoreLosesEverything(t *T) {
	every := t.Timing().RenewEvery
	a, b := t.Locker(locker.WithRenewInterval(every)), t.Locker()
	var leases []*locker.Lease
	for _, name := range []string{"a", "b", "c"} {
		leases = append(leases, t.Lock(a, t.Key(name), locker.WithTTL(time.Hour)))
	}
	t.NoError(t.breaker().Flush(t.Context()), "losing everything")
	for _, lease := range leases {
		t.Ends(lease.Lost(), every+t.Timing().Slack, "the loss of a lock the store has forgotten")
	}
	for _, lease := range leases {
		next := t.Lock(b, lease.Key())
		t.Is(lease.Unlock(t.Context()), locker.ErrLost)
		t.Taken(a, lease.Key())
		t.Unlock(next)
	}
}

func testScriptsForgotten(t *T) {
	a, b, key := t.Locker(), t.Locker(), t.Key("k")
	forget := func() { t.NoError(t.faults().ForgetScripts(), "forgetting scripts") }
	for range 2 {
		forget()
		lease := t.TryLock(a, key)
		forget()
		t.NoError(lease.Renew(t.Context()), "Renew")
		forget()
		inner := t.LockUnder(lease.Context(t.Context()), a, key)
		forget()
		t.Taken(b, key)
		forget()
		t.Unlock(inner)
		w := t.Wait(b, key)
		forget()
		t.Unlock(lease)
		next := t.Granted(w, t.Timing().PollWithin)
		forget()
		if err := next.Unlock(t.Context()); errors.Is(err, locker.ErrLost) {
			t.Errorf("Unlock after scripts were forgotten: %v", err)
		}
		t.Free(a, key)
	}
}

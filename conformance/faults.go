package conformance

import (
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/conformance/internal/suite"
)

// faultCases are about what goes wrong with commands, callers, processes and servers
// beyond the groups failure, outage and processes. See also [TroubleCases].
var faultCases = group("faults", []Case{
	{Name: "CommandLost", Rules: []string{"R11", "R17", "R19"}, Needs: Capabilities{Faults: true}, Isolated: true, Test: testCommandLost,
		Contract: "a command that did not reach the store is ErrUnavailable or tried again, and changes nothing"},
	{Name: "CancelledWhileSubscribing", Rules: []string{"R16", "R17"}, Needs: Capabilities{Faults: true, Notified: true}, Isolated: true, Test: testCancelledWhileSubscribing,
		Contract: "a Lock cancelled while it waits for the store to promise wake-ups returns at once, and does not keep others from waiting"},
	{Name: "CancelledWhileRenewing", Rules: []string{"R11", "R19"}, Needs: Capabilities{Faults: true}, Isolated: true, Test: testCancelledWhileRenewing,
		Contract: "Renew cancelled while its command is on the way returns at once with ErrUnavailable, and the lease goes on"},
	{Name: "CancelledWhileUnlocking", Rules: []string{"R3", "R20"}, Needs: Capabilities{Faults: true}, Isolated: true, Test: testCancelledWhileUnlocking,
		Contract: "Unlock cancelled while its command is on the way returns at once with ErrUnavailable, frees the key, may be repeated, and spares the next holder"},
	{Name: "CancelledWhileReentering", Rules: []string{"R7", "R16", "R17"}, Needs: Capabilities{Faults: true, StoredHolds: true}, Isolated: true, Test: testCancelledWhileReentering,
		Contract: "re-entry cancelled while its command is on the way returns at once with ErrUnavailable, and leaves no hold behind"},
	{Name: "CancelledWhileUnlockingInner", Rules: []string{"R3", "R6", "R20"}, Needs: Capabilities{Faults: true, StoredHolds: true}, Isolated: true, Test: testCancelledWhileUnlockingInner,
		Contract: "an inner Unlock cancelled while its command is on the way returns at once with ErrUnavailable, may be repeated, and leaves the outer hold as it is"},
	{Name: "SilenceWithinTheLease", Rules: []string{"R11", "R15"}, Needs: Capabilities{Faults: true}, Isolated: true, Test: testSilenceWithinTheLease,
		Contract: "a lease survives a black hole that is shorter than what is left of it, and waiters wait on"},
	{Name: "AnswersPastTheLease", Rules: []string{"R1", "R10", "R17"}, Needs: Capabilities{Faults: true}, Isolated: true, Test: testAnswersPastTheLease,
		Contract: "when answers take twice the TTL a holder knows of its loss at Deadline, and nobody is granted what has ended by the time the answer arrives"},
	{Name: "ConnectionsCut", Rules: []string{"R11", "R15", "R19"}, Needs: Capabilities{Servers: true}, Isolated: true, Test: testConnectionsCut,
		Contract: "when the store ends all connections a holder keeps its lease, a release in that moment succeeds, and a waiter gets the key"},
	{Name: "CrashLosesEverything", Rules: []string{"R2", "R10", "R15", "R17", "R21"}, Needs: Capabilities{Servers: true}, Isolated: true, Test: testCrashLosesEverything,
		Contract: "when the store is killed and comes back empty waiters carry on, the holder knows by its Deadline, and the next one has a greater token"},
	{Name: "CrashKeepsEverything", Rules: []string{"R1", "R11", "R15", "R17", "R21"}, Needs: Capabilities{Servers: true}, Isolated: true, Test: testCrashKeepsEverything,
		Contract: "when a store that persists is killed and comes back within a lease, the lease survives and still excludes others, holds included"},
	{Name: "KilledAroundTheGrant", Rules: []string{"R15", "R16"}, Needs: Capabilities{Processes: true}, Isolated: true, Fault: true, Test: testKilledAroundTheGrant,
		Contract: "a process killed in the moment in which it is granted the key holds up the next waiter for a TTL at most"},
	{Name: "FrozenAroundTheTTL", Rules: []string{"R1", "R2", "R10", "R21"}, Needs: Capabilities{Processes: true}, Isolated: true, Fault: true, Test: testFrozenAroundTheTTL,
		Contract: "a process frozen for half a TTL, one and three either goes on holding the key or learns that it does not: never both it and the next"},
})

// newer checks that later was granted after earlier as far as tokens say, and returns later.
func (t *T) newer(later, earlier int64) int64 {
	t.Helper()
	if t.caps().Fencing && later <= earlier {
		t.Errorf("token %d after %d", later, earlier)
	}
	return later
}

func testCommandLost(t *T) {
	a, b, key := t.Locker(), t.Locker(), t.Key("k")
	lose := t.faults().LoseCommand
	for range 2 {
		t.NoError(lose(OpAcquire), "losing a command")
		lease := t.Lock(a, key, locker.WithTTL(time.Hour))
		t.Taken(b, key)

		before := lease.Deadline()
		t.NoError(lose(OpRenew), "losing a command")
		err := lease.Renew(t.Context())
		t.Is(err, locker.ErrUnavailable)
		t.Isnt(err, locker.ErrLost)
		if d := lease.Deadline(); !d.Equal(before) {
			t.Errorf("a Renew that did not arrive moved the deadline by %v", d.Sub(before))
		}
		t.RenewedWithin(t.Timing().PollWithin, lease) // a node of a quorum may lose its command only now

		t.NoError(lose(OpRelease), "losing a command")
		if err := lease.Unlock(t.Context()); err != nil {
			t.Is(err, locker.ErrUnavailable)
			t.Unlock(lease)
		}
		t.FreeWithin(t.Timing().PollWithin, b, key)

		t.NoError(lose(OpAcquire), "losing a command")
		_, err = a.TryLock(t.Context(), key, locker.WithTTL(time.Hour))
		t.unavailable(err)
		t.FreeWithin(t.Timing().PollWithin, b, key)

		if t.caps().StoredHolds {
			t.counted(a, b, key, lose)
		}
	}
}

func testSilenceWithinTheLease(t *T) {
	var events suite.EventLog
	ttl := t.Timing().TTL + 2*t.Timing().Slack
	a, b, key := t.Locker(locker.WithRenewInterval(t.Timing().RenewEvery), suite.WithObserver(&events)), t.Locker(), t.Key("k")
	lease := t.Lock(a, key, locker.WithTTL(ttl))
	w := t.Wait(b, key)
	t.NoError(t.faults().BlackHole(), "ending the store's service")
	// That nothing answers for a while is the subject.
	t.Sleep(ttl / 5)
	t.heal()
	n := events.Count(locker.EventRenewed)
	t.Eventually(t.Timing().Patience, "renewals succeed again", func() bool { return events.Count(locker.EventRenewed) >= n+2 })
	t.Open(lease.Lost(), "Lost")
	t.Waits(w)
	t.Taken(t.Locker(), key)
	t.Unlock(lease)
	next := t.Granted(w, t.Timing().Patience)
	t.newer(next.Token(), lease.Token())
	t.Unlock(next)
}

func testAnswersPastTheLease(t *T) {
	ttl := t.Timing().ShortTTL
	a, b, key, other := t.Locker(), t.Locker(), t.Key("k"), t.Key("other")
	t.Free(b, other) // so that connections are up
	lease := t.Lock(a, key, locker.WithTTL(ttl))
	ctx := lease.Context(t.Context())
	t.NoError(t.faults().Slow(2*ttl), "slowing the store down")
	t.lostAtDeadline(ctx, lease)
	for _, lock := range []func() (*locker.Lease, error){
		func() (*locker.Lease, error) { return b.TryLock(t.Context(), other, locker.WithTTL(ttl)) },
		func() (*locker.Lease, error) {
			return b.Lock(t.Context(), other, locker.WithTTL(ttl), locker.WithWait(3*ttl))
		},
	} {
		_, err := lock()
		t.unavailable(err)
	}
	t.NoError(t.faults().Heal(), "healing")
	// A command and a clean-up may be on their slow way.
	within := 4*ttl + t.Timing().PollWithin + t.Timing().Slack
	t.FreeWithin(within, b, key)
	t.FreeWithin(within, a, other)
	t.Is(lease.Unlock(t.Context()), locker.ErrLost)
}

func (t *T) recover() {
	t.Helper()
	t.NoError(t.servers().Recover(), "having the servers recover")
}

func testConnectionsCut(t *T) {
	ttl := t.Timing().TTL + 2*t.Timing().Slack
	a, b, key := t.Locker(locker.WithRenewInterval(t.Timing().RenewEvery)), t.Locker(), t.Key("k")
	for range 3 {
		lease := t.Lock(a, key, locker.WithTTL(ttl))
		w := t.Wait(b, key)
		t.NoError(t.servers().CutConnections(), "ending connections")
		t.RenewedWithin(ttl/2, lease)
		t.Open(lease.Lost(), "Lost")
		t.Waits(w)

		cut := t.Go(func() { t.NoError(t.servers().CutConnections(), "ending connections") })
		t.Unlock(lease)
		t.Ends(cut, t.Timing().Patience, "the end of connections")
		next := t.Granted(w, t.Timing().PollWithin)
		t.newer(next.Token(), lease.Token())
		t.Unlock(next)
	}
}

func testCrashLosesEverything(t *T) {
	ttl := t.Timing().TTL
	a, b, key := t.Locker(locker.WithRenewInterval(t.Timing().RenewEvery)), t.Locker(), t.Key("k")
	lease := t.Lock(a, key, locker.WithTTL(ttl))
	w := t.Wait(b, key)
	t.NoError(t.servers().Crash(), "killing the store")
	begun := t.Start(b, t.Key("begun meanwhile"))
	t.Sleep(2 * t.Timing().RenewEvery) // until renewals and waiters have met the failure
	t.recover()
	next := t.Granted(w, ttl+t.Timing().PollWithin)
	t.newer(next.Token(), lease.Token())
	// By its next renewal, not before: for that long there are two. (See the
	// token.)
	t.Ends(lease.Lost(), ttl+t.Timing().Slack, "the loss of a lock the store has forgotten")
	t.Is(lease.Unlock(t.Context()), locker.ErrLost)
	t.Taken(t.Locker(), key)
	t.RenewedWithin(ttl/2, next)
	t.Unlock(next)
	t.Unlock(t.Granted(begun, t.Timing().Patience))
	t.FreeWithin(t.Timing().PollWithin, a, key)
}

func testCrashKeepsEverything(t *T) {
	ttl := t.Timing().TTL + 2*t.Timing().Slack
	t.NoError(t.servers().Persist(), "making the store persist")
	a, b, key := t.Locker(locker.WithRenewInterval(t.Timing().RenewEvery)), t.Locker(), t.Key("k")
	lease := t.Lock(a, key, locker.WithTTL(ttl))
	inner := t.LockUnder(lease.Context(t.Context()), a, key)
	w := t.Wait(b, key)
	t.NoError(t.servers().Crash(), "killing the store")
	t.Sleep(2 * t.Timing().RenewEvery) // until renewals and waiters have met the failure
	t.recover()
	t.RenewedWithin(ttl/2, lease)
	t.Open(lease.Lost(), "Lost")
	t.Waits(w)
	other := t.Locker()
	t.Taken(other, key)
	if err := inner.Unlock(t.Context()); err != nil {
		t.Is(err, locker.ErrUnavailable) // on a connection from before
	}
	t.Taken(other, key)
	t.Unlock(lease)
	next := t.Granted(w, t.Timing().PollWithin+t.Timing().Slack)
	t.newer(next.Token(), lease.Token())
	t.Unlock(next)
}

func testKilledAroundTheGrant(t *T) {
	ttl := t.Timing().ShortTTL
	holder, l, key := t.Locker(), t.Locker(), t.Key("k")
	for round := range 3 {
		child := t.child()
		lease := t.Lock(holder, key)
		doomed := child.Start(suite.ChildLock{Key: key, TTL: ttl})
		t.Ends(doomed.Waiting(), t.Timing().Patience, "a child waits")
		t.Unlock(lease)
		if round == 0 { // after, for certain
			t.Ends(doomed.Done(), t.Timing().Patience, "a child is granted the key")
			t.NoError(doomed.Err(), "a child's Lock")
		} else { // in the midst of it
			time.Sleep(time.Duration(t.IntN(3000)) * time.Microsecond) // a random moment is the subject
		}
		child.Kill()
		t.FreeWithin(ttl+t.Timing().PollWithin, l, key)
	}
}

func testFrozenAroundTheTTL(t *T) {
	ttl := t.Timing().ShortTTL
	l := t.Locker()
	for _, frozen := range []time.Duration{ttl / 2, ttl, 3 * ttl} {
		child, key := t.child(), t.Key(frozen.String())
		theirs := t.ChildLock(child, suite.ChildLock{Key: key, TTL: ttl})
		asking := theirs.AskUntilLost()
		w := t.Wait(l, key)
		t.NoError(child.Stop(), "freezing a child")
		t.Sleep(frozen)
		t.NoError(child.Continue(), "letting a child run on")

		asked := time.Now()
		err := t.ChildRenew(theirs)
		switch {
		case err != nil:
			t.Is(err, locker.ErrLost)
		case frozen > 2*ttl:
			t.Errorf("a child renewed its lease after %v", frozen)
		default:
			select {
			case <-w.Done():
				if w.At.Time.Before(asked) {
					t.Errorf("a child renewed a lease after the next holder was granted the key")
				}
			default:
			}
			if err := t.ChildUnlock(theirs); err != nil {
				t.Is(err, locker.ErrLost)
			}
		}
		next := t.Granted(w, ttl+t.Timing().PollWithin)
		t.newer(next.Token(), theirs.Token())
		t.Ends(asking.Done(), t.Timing().Patience, "a child knows that its lease is over")
		if n := asking.N(); n > 0 {
			t.Errorf("%d times a lease of a child reported after its deadline that it was held", n)
		}
		t.NoError(next.Renew(t.Context()), "Renew by the next holder")
		t.Unlock(next)
	}
}

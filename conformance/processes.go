package conformance

import (
	"path/filepath"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/conformance/internal/suite"
)

var processCases = group("processes", []Case{
	{Name: "ProcessesExclude", Rules: []string{"R1", "R21"}, Needs: Capabilities{Processes: true}, Test: testProcessesExclude,
		Contract: "a lock is handed back and forth between processes, with tokens that increase"},
	{Name: "ProcessesContend", Rules: []string{"R1"}, Needs: Capabilities{Processes: true}, Isolated: true, Test: testProcessesContend,
		Contract: "of several processes that contend there are never two inside"},
	{Name: "KilledHolder", Rules: []string{"R11", "R15"}, Needs: Capabilities{Processes: true}, Fault: true, Test: testKilledHolder,
		Contract: "when the holder's process is killed a waiter gets the key when the TTL is over"},
	{Name: "KilledWaiter", Rules: []string{"R15", "R16"}, Needs: Capabilities{Processes: true}, Fault: true, Test: testKilledWaiter,
		Contract: "a waiter whose process was killed holds nobody up"},
	{Name: "FrozenHolderIsTold", Rules: []string{"R2", "R10"}, Needs: Capabilities{Processes: true}, Isolated: true, Fault: true, Test: testFrozenHolderIsTold,
		Contract: "a process frozen past its lease learns so by its first call, and cannot harm the next holder"},
	{Name: "FrozenHolderInTime", Rules: []string{"R10", "R11"}, Needs: Capabilities{Processes: true}, Isolated: true, Fault: true, Test: testFrozenHolderInTime,
		Contract: "a process frozen for less than what is left of its lease keeps it"},
	{Name: "FrozenWaiter", Rules: []string{"R15", "R16"}, Needs: Capabilities{Processes: true}, Isolated: true, Fault: true, Test: testFrozenWaiter,
		Contract: "a waiter whose process is frozen holds nobody up, and gets its turn when it runs on"},
	{Name: "SharedOwnerAcrossProcesses", Rules: []string{"R8"}, Needs: Capabilities{Processes: true, StoredHolds: true}, Test: testSharedOwnerAcrossProcesses,
		Contract: "the same explicit owner re-enters from another process; when that is killed, its holds end with the lease"},
	{Name: "CoOwnerIsKilled", Rules: []string{"R8", "R19"}, Needs: Capabilities{Processes: true, StoredHolds: true}, Fault: true, Test: testCoOwnerIsKilled,
		Contract: "of processes that share a lock by its owner's name one is killed: its holds end with its own TTL while the others go on, and their last Unlock frees the key"},
})

func testProcessesExclude(t *T) {
	child, l, key := t.child(), t.Locker(), t.Key("k")
	req := suite.ChildLock{Key: key, TTL: t.Timing().TTL}
	var last int64
	for range 3 {
		theirs := t.ChildLock(child, req)
		t.Taken(l, key)
		w := t.Wait(l, key)
		t.NoError(t.ChildUnlock(theirs), "a child's Unlock")
		ours := t.Granted(w, t.Timing().PollWithin)

		try := req
		try.Try = true
		refused := child.Start(try)
		t.Ends(refused.Done(), t.Timing().Patience, "the end of a child's TryLock")
		t.Is(refused.Err(), locker.ErrNotAcquired)
		t.Unlock(ours)
		last = t.newer(ours.Token(), t.newer(theirs.Token(), last))
	}
}

func testProcessesContend(t *T) {
	key, file := t.Key("k"), filepath.Join(t.TempDir(), "inside")
	var children []*suite.Child
	for range 3 {
		child := t.child()
		// It is up, so that all begin at the same time.
		t.NoError(t.ChildUnlock(t.ChildLock(child, suite.ChildLock{Key: t.Key("up"), TTL: t.Timing().TTL})), "a child's Unlock")
		children = append(children, child)
	}
	t.Together(len(children), func(i int) {
		call := children[i].Contend(suite.ChildLock{Key: key, TTL: t.Timing().TTL}, 20, file)
		t.Ends(call.Done(), t.Timing().Patience, "a child has contended")
		t.NoError(call.Err(), "a child that contended")
		if n := call.N(); n > 0 {
			t.Errorf("%d times another process was inside", n)
		}
	})
}

func testKilledHolder(t *T) {
	ttl := t.Timing().TTL
	child, l, key := t.child(), t.Locker(), t.Key("k")
	t.ChildLock(child, suite.ChildLock{Key: key, TTL: ttl})
	w := t.Wait(l, key)
	// Renewal holds it past the TTL.
	t.Sleep(ttl + ttl/2)
	t.Waits(w)
	child.Kill()
	t.Unlock(t.Granted(w, ttl+t.Timing().PollWithin))
}

func testKilledWaiter(t *T) {
	child, holder, l, key := t.child(), t.Locker(), t.Locker(), t.Key("k")
	lease := t.Lock(holder, key)
	doomed := child.Start(suite.ChildLock{Key: key, TTL: t.Timing().ShortTTL})
	t.Ends(doomed.Waiting(), t.Timing().Patience, "a child waits")
	w := t.Wait(l, key)
	child.Kill()
	t.Ends(doomed.Done(), t.Timing().Patience, "the end of the child")
	t.Unlock(lease)
	// An attempt of the child's may have been on its way.
	t.Unlock(t.Granted(w, t.Timing().ShortTTL+t.Timing().PollWithin))
}

func testFrozenHolderIsTold(t *T) {
	ttl := t.Timing().ShortTTL
	child, l, key := t.child(), t.Locker(), t.Key("k")
	theirs := t.ChildLock(child, suite.ChildLock{Key: key, TTL: ttl})
	asking := theirs.AskUntilLost()
	t.NoError(child.Stop(), "freezing a child")
	ours := t.Lock(l, key)
	// Past its deadline, which is a little before the store's.
	t.Sleep(ttl / 4)
	t.NoError(child.Continue(), "letting a child run on")
	t.Ends(asking.Done(), t.Timing().Patience, "a child knows of its loss")
	if n := asking.N(); n > 0 {
		t.Errorf("%d times a lease of a child reported after its deadline that it was held", n)
	}
	t.Ends(theirs.Lost(), t.Timing().Slack, "a child's Lost")
	t.Is(t.ChildRenew(theirs), locker.ErrLost)
	t.Is(t.ChildUnlock(theirs), locker.ErrLost)
	t.NoError(ours.Renew(t.Context()), "Renew by the next holder")
	t.newer(ours.Token(), theirs.Token())
	t.Unlock(ours)
}

func testFrozenHolderInTime(t *T) {
	ttl := t.Timing().TTL + 2*t.Timing().Slack
	child, l, key := t.child(), t.Locker(), t.Key("k")
	theirs := t.ChildLock(child, suite.ChildLock{Key: key, TTL: ttl, WithoutRenewal: true})
	t.NoError(child.Stop(), "freezing a child")
	t.Sleep(ttl / 2)
	t.NoError(child.Continue(), "letting a child run on")
	t.NoError(t.ChildRenew(theirs), "a child's Renew")
	t.Taken(l, key)
	t.NoError(t.ChildUnlock(theirs), "a child's Unlock")
	t.Open(theirs.Lost(), "a child's Lost")
	t.Free(l, key)
}

func testFrozenWaiter(t *T) {
	child, holder, l, key := t.child(), t.Locker(), t.Locker(), t.Key("k")
	lease := t.Lock(holder, key)
	frozen := child.Start(suite.ChildLock{Key: key, TTL: t.Timing().TTL})
	t.Ends(frozen.Waiting(), t.Timing().Patience, "a child waits")
	w := t.Wait(l, key)
	t.NoError(child.Stop(), "freezing a child")
	t.Unlock(lease)
	// An attempt of the child's may have been on its way.
	next := t.Granted(w, t.Timing().TTL+t.Timing().PollWithin)
	t.NoError(child.Continue(), "letting a child run on")
	// It was passed over, not granted anything.
	t.Sleep(t.Timing().ShortTTL)
	select {
	case <-frozen.Done():
		t.Errorf("a child's Lock returns on a held key: %v, token %d; the holder has %d and %v", frozen.Err(), frozen.Token(), next.Token(), next.Err())
	default:
	}
	t.Unlock(next)
	t.Ends(frozen.Done(), t.Timing().PollWithin, "a child that was frozen is granted the key")
	t.NoError(frozen.Err(), "a child's Lock")
	t.NoError(t.ChildUnlock(frozen), "a child's Unlock")
}

func testSharedOwnerAcrossProcesses(t *T) {
	ttl := t.Timing().ShortTTL
	child, l, other, key := t.child(), t.Locker(), t.Locker(), t.Key("k")
	ctx := locker.ContextWithOwner(t.Context(), "shared")
	req := suite.ChildLock{Key: key, TTL: t.Timing().TTL, Owner: "shared"}

	ours, theirs := t.LockUnder(ctx, l, key), t.ChildLock(child, req)
	t.Unlock(ours)
	t.Taken(other, key)
	t.NoError(t.ChildUnlock(theirs), "a child's Unlock")
	t.Free(other, key)

	req.TTL = ttl
	t.ChildLock(child, req)
	ours = t.LockUnder(ctx, l, key, locker.WithTTL(ttl), locker.WithoutRenewal())
	child.Kill()
	// The child's hold is not given back; it ends with the lease.
	_ = ours.Unlock(t.Context())
	t.FreeWithin(ttl+t.Timing().PollWithin+time.Second, other, key)
}

func testCoOwnerIsKilled(t *T) {
	ttl := t.Timing().ShortTTL
	child, l, other, key := t.child(), t.Locker(locker.WithRenewInterval(t.Timing().RenewEvery)), t.Locker(), t.Key("k")
	ctx := locker.ContextWithOwner(t.Context(), "shared")
	ours := t.LockUnder(ctx, l, key)
	t.ChildLock(child, suite.ChildLock{Key: key, TTL: ttl, Owner: "shared"})
	child.Kill()
	// The last renewal that the child sent has come to its end.
	t.Sleep(ttl + ttl/2)
	inner := t.LockUnder(ctx, l, key)
	t.Unlock(ours)
	t.Taken(other, key)
	t.Unlock(inner)
	t.Free(other, key)
}

package conformance

import (
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/conformance/internal/suite"
)

var waitingCases = group("waiting", []Case{
	{Name: "BlocksUntilUnlock", Rules: []string{"R15"}, Test: testBlocksUntilUnlock,
		Contract: "Lock returns after the holder's Unlock, not before"},
	{Name: "WaitBoundIsNotAcquired", Rules: []string{"R17"}, Locker: true, Test: testWaitBoundIsNotAcquired,
		Contract: "Lock gives up when WithWait is over, not before, with ErrNotAcquired and no context's error"},
	{Name: "DeadlineMatchesBoth", Rules: []string{"R17"}, Locker: true, Test: testDeadlineMatchesBoth,
		Contract: "a wait ended by its context's deadline matches ErrNotAcquired and context.DeadlineExceeded"},
	{Name: "CancelIsPrompt", Rules: []string{"R16", "R17"}, Test: testCancelIsPrompt,
		Contract: "a wait ended by cancellation returns at once and matches ErrNotAcquired, context.Canceled and the cause given"},
	{Name: "DeadContextGetsNothing", Rules: []string{"R16", "R17"}, Locker: true, Test: testDeadContextGetsNothing,
		Contract: "Lock and TryLock under a context that is over fail with its error, even on a free key, and leave it free"},
	{Name: "WaitZeroIsOneAttempt", Rules: []string{"R17"}, Locker: true, Test: testWaitZeroIsOneAttempt,
		Contract: "Lock with WithWait(0) makes one attempt: it gets a free key, and is ErrNotAcquired at once if the key is held"},
	{Name: "UnboundedWaitUndoesTheDefault", Rules: []string{"R17"}, Locker: true, Test: testUnboundedWaitUndoesTheDefault,
		Contract: "WithUnboundedWait waits until the context is done, also against a default of the constructor"},
	{Name: "TryLockDoesNotWait", Rules: []string{"R14", "R17"}, Locker: true, Test: testTryLockDoesNotWait,
		Contract: "TryLock on a held key returns at once, whatever WithWait says"},
	{Name: "TryLockFailsBehindTheQueue", Rules: []string{"R14"}, Locker: true, Test: testTryLockFailsBehindTheQueue,
		Contract: "TryLock does not overtake the callers of its own Locker that wait for the key"},
	{Name: "FIFOWithinLocker", Rules: []string{"R14"}, Locker: true, Test: testFIFOWithinLocker,
		Contract: "callers of one Locker get the key in the order in which they asked for it"},
	{Name: "RefusedCallersAskSeldom", Rules: []string{"R14", "R15"}, Needs: Capabilities{Faults: true}, Isolated: true, Counts: true, Test: testRefusedCallersAskSeldom,
		Contract: "a refused TryLock is one command, or none if its own Locker holds the key; of the callers of one Locker that wait for a key one asks, about once a second if the store wakes it"},
	{Name: "GivesUpRightAfterASuccess", Rules: []string{"R16"}, Test: testGivesUpRightAfterASuccess,
		Contract: "a waiter that gives up within a second of its Locker's last success holds the next one up no longer than any other does"},
	{Name: "FIFOAcrossLockers", Rules: []string{"R14"}, Needs: Capabilities{Fair: true}, Test: testFIFOAcrossLockers,
		Contract: "where the strategy is fair, callers of different Lockers get the key in the order in which they asked for it"},
	{Name: "QueueSurvivesItsMembers", Rules: []string{"R14", "R16"}, Locker: true, Test: testQueueSurvivesItsMembers,
		Contract: "waiters that give up at the head, in the middle and at the end of the queue do not hold up or reorder the others"},
	{Name: "BoundCountsInTheQueue", Rules: []string{"R14", "R17"}, Locker: true, Test: testBoundCountsInTheQueue,
		Contract: "WithWait counts for a caller behind others of its Locker too"},
	{Name: "CancelledWaiterPassesOn", Rules: []string{"R16"}, Test: testCancelledWaiterPassesOn,
		Contract: "a waiter cancelled in the very moment it is woken does not keep the key or the wake-up to itself"},
	{Name: "ExpiredHolderInOwnLocker", Rules: []string{"R10", "R14"}, Locker: true, Test: testExpiredHolderInOwnLocker,
		Contract: "a waiter gets the key when a lease of its own Locker expires"},
})

func testBlocksUntilUnlock(t *T) {
	a, b, key := t.Locker(), t.Locker(), t.Key("k")
	lease := t.Lock(a, key)
	w := t.Wait(b, key)
	// That it goes on waiting is the subject: past the first polls.
	t.Sleep(t.Timing().ShortTTL)
	t.Waits(w)
	before := time.Now()
	t.Unlock(lease)
	next := t.Granted(w, t.Timing().PollWithin)
	if w.At.Time.Before(before) {
		t.Errorf("a waiter was granted the key before Unlock")
	}
	t.Unlock(next)
}

func testTryLockDoesNotWait(t *T) {
	a, b, key := t.Locker(), t.Locker(locker.WithWait(time.Hour)), t.Key("k")
	lease := t.Lock(a, key)
	w := t.Wait(b, key)
	for _, opts := range [][]locker.LockOption{nil, {locker.WithWait(time.Hour)}, {locker.WithWait(0)}} {
		t.Prompt("TryLock on a held key", func() {
			_, err := b.TryLock(t.Context(), key, opts...)
			t.Is(err, locker.ErrNotAcquired)
			t.Isnt(err, locker.ErrUnavailable)
		})
	}
	t.Unlock(lease)
	t.Unlock(t.Granted(w, t.Timing().PollWithin))
}

func testTryLockFailsBehindTheQueue(t *T) {
	a, b, key := t.Locker(), t.Locker(), t.Key("k")
	for range 5 {
		lease := t.Lock(a, key)
		w := t.Wait(b, key)
		// Tries that never stop, from before the key is free: the waiter is
		// served all the same, since none of them gets ahead of it.
		overtook, stop := 0, make(chan struct{})
		tried := t.Go(func() {
			for n := 0; ; n++ {
				if n > 500 {
					time.Sleep(100 * time.Microsecond) // each try is an event, and a Locker keeps a thousand for its observer
				}
				select {
				case <-w.Done():
					return
				case <-stop:
					return
				default:
				}
				if l, err := b.TryLock(t.Context(), key); err == nil {
					overtook++
					_ = l.Unlock(t.Context())
				}
			}
		})
		t.Unlock(lease)
		next := t.Granted(w, t.Timing().PollWithin)
		close(stop)
		t.Ends(tried, t.Timing().Patience, "the end of the tries")
		if overtook > 0 {
			t.Errorf("%d tries were granted the key ahead of a waiter", overtook)
		}
		t.Unlock(next)
	}
}

// served waits for the waiters to be granted the key in their order.
func (t *T) served(waiters []*suite.Waiter) {
	t.Helper()
	for i, w := range waiters {
		t.Ends(w.Done(), t.Timing().PollWithin, "waiter "+strconv.Itoa(i)+" is granted the key in its turn")
		lease := t.Got("Lock", w.Lease, w.Err)
		for _, later := range waiters[i+1:] {
			t.Open(later.Done(), "the Lock of a later waiter returns")
		}
		t.Unlock(lease)
	}
}

func testFIFOWithinLocker(t *T) {
	l, key := t.Locker(), t.Key("k")
	for _, holder := range []locker.Locker{l, t.Locker()} {
		lease := t.Lock(holder, key)
		var waiters []*suite.Waiter
		for range 10 {
			waiters = append(waiters, t.Wait(l, key))
		}
		t.Unlock(lease)
		t.served(waiters)
	}
}

func testFIFOAcrossLockers(t *T) {
	ls, key := t.Lockers(8), t.Key("k")
	for range 3 {
		lease := t.Lock(ls[0], key)
		var waiters []*suite.Waiter
		for _, l := range ls[1:] {
			waiters = append(waiters, t.Wait(l, key))
		}
		t.Unlock(lease)
		t.served(waiters)
	}
}

func testQueueSurvivesItsMembers(t *T) {
	l, other, key := t.Locker(), t.Locker(), t.Key("k")
	lease := t.Lock(other, key)
	t.Taken(l, key) // it is connected now
	var waiters []*suite.Waiter
	for range 9 {
		waiters = append(waiters, t.Wait(l, key))
	}
	for _, i := range []int{8, 4, 3, 0} {
		waiters[i].Cancel()
		t.Is(t.Refused(waiters[i], t.Timing().Prompt), locker.ErrNotAcquired, context.Canceled)
		waiters = slices.Delete(waiters, i, i+1)
	}
	t.Unlock(lease)
	t.served(waiters)
	t.FreeWithin(t.Timing().PollWithin, other, key)
}

func testRefusedCallersAskSeldom(t *T) {
	const callers, watched = 50, 2 * time.Second
	holder, other, key := t.Locker(locker.WithoutRenewal()), t.Locker(), t.Key("k")
	lease := t.Lock(holder, key)
	sent := func(f func()) int {
		before := t.faults().Sent(OpAcquire)
		f()
		return t.faults().Sent(OpAcquire) - before
	}
	if n := sent(func() { t.Taken(holder, key) }); n != 0 {
		t.Errorf("TryLock of a key that its own Locker holds sent %d commands, want none", n)
	}
	if n := sent(func() { t.Taken(other, key) }); n != 1 {
		t.Errorf("TryLock of a key that another Locker holds sent %d commands, want 1", n)
	}
	cancel := t.Crowd(callers, other, key)
	// A look a second and some when it begins to wait; or, if the store does not wake
	// waiters, one in 10 ms at most.
	most := int(watched/(10*time.Millisecond)) + 10
	if t.caps().Notified {
		most = int(watched/time.Second) + 4
	}
	if n := sent(func() { t.Sleep(watched) }); n > most {
		t.Errorf("%d callers of one Locker that waited for %v sent %d commands, want %d at most", callers, watched, n, most)
	}
	cancel()
	t.Unlock(lease)
	t.FreeWithin(t.Timing().PollWithin, other, key)
}

func testExpiredHolderInOwnLocker(t *T) {
	ttl := t.Timing().ShortTTL
	l, key := t.Locker(), t.Key("k")
	first := t.Lock(l, key, locker.WithTTL(ttl), locker.WithoutRenewal())
	w := t.Wait(l, key)
	next := t.Granted(w, ttl+t.Timing().PollWithin)
	if early := first.Deadline().Sub(w.At.Time); early > 0 {
		t.Errorf("the next holder was granted the key %v before the deadline", early)
	}
	t.Is(first.Unlock(t.Context()), locker.ErrLost)
	t.Unlock(next)
}

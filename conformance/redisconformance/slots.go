package redisconformance

import (
	"errors"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/conformance"
	"github.com/distlock/locker/conformance/internal/suite"
	"github.com/distlock/locker/internal/test/pace"
)

const slotsGroup = "slots"

var slotCases = []conformance.Case{
	{Name: "SlotMoves", Group: slotsGroup, Rules: []string{"R1", "R11", "R15", "R17", "R21"}, Isolated: true, Fault: true, Test: testSlotMoves,
		Contract: "while a slot moves to another node, and afterwards, a holder keeps its lock, others are refused or asked to try again, and waiters carry on"},
	{Name: "UnlockWhileSlotMoves", Group: slotsGroup, Rules: []string{"R3", "R17", "R19"}, Isolated: true, Fault: true, Test: testUnlockWhileSlotMoves,
		Contract: "an Unlock in the middle of a slot's move is tried until it has freed the key"},
	{Name: "WokenOnTheNewNode", Group: slotsGroup, Rules: []string{"R15"}, Needs: conformance.Capabilities{Notified: true}, Isolated: true, Fault: true, Test: testWokenOnTheNewNode,
		Contract: "after a slot has moved, waiters are woken as before"},
}

// move begins to move the slot of key to the next shard.
func (h *harness) move(t *conformance.T, key string) (slot, to int) {
	t.Helper()
	return h.cluster.Slot(t, key), (h.cluster.ShardOf(t, key) + 1) % h.cluster.Shards()
}

func testSlotMoves(t *conformance.T) {
	h, key, other := t.Harness().(*harness), t.Key("{k}"), t.Key("{k}other")
	ttl := locker.WithTTL(failoverTTL)
	a, b, c := t.Locker(ttl), t.Locker(ttl), t.Locker(ttl)
	lease := t.Lock(a, key)
	w := t.Wait(b, key)
	plain := t.Lock(t.Locker(ttl, locker.WithoutFencing()), t.Key("{k}plain"))

	slot, to := h.move(t, key)
	move := h.cluster.StartMove(t, slot, to)
	during := func(phase string) *suite.Waiter {
		t.Helper()
		for _, lease := range []*locker.Lease{lease, plain} {
			if err := lease.Renew(t.Context()); err != nil {
				t.Errorf("Renew of %s %s: %v", lease.Key(), phase, err)
			}
		}
		refused(t, c, key)
		t.Open(lease.Lost(), "Lost")
		t.Open(w.Done(), "a waiter's Lock returns on a held key")
		// A lock begun now: neither node may be able to grant it.
		return t.Start(c, other+phase)
	}
	begun := []*suite.Waiter{during("before the keys have moved")}
	move.MoveKeys(t)
	begun = append(begun, during("after the keys have moved"))
	move.Finish(t)
	for _, w := range begun {
		t.Unlock(t.Granted(w, t.Timing().PollWithin))
	}
	t.Unlock(plain)
	t.RenewedWithin(t.Timing().Slack, lease)
	passOn(t, lease, w, c, t.Locker())
}

// refused checks that l is not granted key, be it because a node cannot say.
func refused(t *conformance.T, l locker.Locker, key string) {
	t.Helper()
	lease, err := l.TryLock(t.Context(), key)
	if err == nil {
		_ = lease.Unlock(t.Context())
		t.Fatalf("TryLock succeeded on a key that is held")
	}
	if !errors.Is(err, locker.ErrUnavailable) {
		t.Is(err, locker.ErrNotAcquired)
	}
}

func testUnlockWhileSlotMoves(t *conformance.T) {
	h, key := t.Harness().(*harness), t.Key("k")
	a, b := t.Locker(), t.Locker()
	lease := t.Lock(a, key)
	w := t.Wait(b, key)
	slot, to := h.move(t, key)
	move := h.cluster.StartMove(t, slot, to)
	var err error
	unlocked := t.Go(func() { err = lease.Unlock(t.Context()) })
	select {
	case <-unlocked:
	case <-time.After(t.Timing().RenewEvery): // it is being refused, for now
	}
	move.MoveKeys(t)
	move.Finish(t)
	t.Ends(unlocked, t.Timing().Slack, "Unlock returns")
	t.NoError(err, "Unlock")
	next := t.Granted(w, t.Timing().PollWithin)
	newer(t, next, lease)
	t.Unlock(next)
	t.FreeWithin(t.Timing().PollWithin, a, key)
}

func testWokenOnTheNewNode(t *conformance.T) {
	h, key := t.Harness().(*harness), t.Key("k")
	a, b := t.Locker(), t.Locker()
	lease := t.Lock(a, key)
	w := t.Wait(b, key)
	slot, to := h.move(t, key)
	h.cluster.MoveSlot(t, slot, to)
	passOn(t, lease, w)
	// Finding the way anew may take a look or two of the waiter's own.
	t.Eventually(t.Timing().Patience, "a waiter is woken, not by its own look", func() bool {
		for range 3 {
			lease := t.Lock(a, key)
			w := t.Wait(b, key)
			free := pace.Now()
			t.Unlock(lease)
			t.Unlock(t.Granted(w, t.Timing().PollWithin))
			if w.At.Since(free) > t.Timing().RenewEvery/2 {
				return false
			}
		}
		return true
	})
}

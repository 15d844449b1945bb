package conformance

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/conformance/internal/suite"
)

// Hand-over inside the process is the Locker's doing; what a driver has to do with it is
// that tokens it says are reserved are, and that its claims bear it. A strategy that
// reserves none passes these cases without a hand-over.
var handOverCases = group("hand-over", []Case{
	{Name: "HandOversExclude", Rules: []string{"R1", "R21"}, Test: testHandOversExclude,
		Contract: "goroutines of several Lockers that pass a lock on are never two inside, and get tokens that increase and owners of their own"},
	{Name: "HandOversShareTurns", Rules: []string{"R14"}, Needs: Capabilities{Fair: true}, Test: testHandOversShareTurns,
		Contract: "where the strategy is fair, the goroutines of one Locker do not keep another Locker waiting by passing the lock on among them"},
	{Name: "TokenAfterHandOvers", Rules: []string{"R21"}, Needs: Capabilities{Fencing: true, Break: true}, Test: testTokenAfterHandOvers,
		Contract: "the token of the next holder is greater than all that were passed on, also if the key was deleted meanwhile"},
	{Name: "LossAfterHandOver", Rules: []string{"R2", "R10"}, Needs: Capabilities{Break: true}, Test: testLossAfterHandOver,
		Contract: "a lease that was passed on learns that its key is gone, even if it went before"},
	{Name: "GivingUpAtHandOver", Rules: []string{"R16"}, Test: testGivingUpAtHandOver,
		Contract: "waiters that give up while the lock is passed on to them hold up no other and leave the lock free"},
	{Name: "JoinedIsNotHandedOver", Rules: []string{"R1", "R8"}, Needs: Capabilities{StoredHolds: true}, Test: testJoinedIsNotHandedOver,
		Contract: "a lock that another process shares by its owner's name is not passed on while the other process has it"},
	{Name: "KilledAfterHandOver", Rules: []string{"R11", "R15"}, Needs: Capabilities{Processes: true}, Fault: true, Test: testKilledAfterHandOver,
		Contract: "a lock whose process is killed right after it was passed on is free when its TTL is over"},
})

// brief is the options of a Locker that passes a lock on for longer than the default.
var brief = locker.WithHandOver(locker.MaxHandOvers, time.Second)

func testHandOversExclude(t *T) {
	ls, key := []locker.Locker{t.Locker(brief), t.Locker()}, t.Key("k")
	var inside atomic.Int32
	var mu sync.Mutex
	var tokens []int64
	var leases []*locker.Lease
	t.contend(ls, 8, 10, func(l locker.Locker) *locker.Lease { return t.Lock(l, key) }, func(lease *locker.Lease) {
		if inside.Add(1) != 1 {
			t.Errorf("two are inside")
		}
		mu.Lock()
		tokens = append(tokens, lease.Token())
		leases = append(leases, lease)
		mu.Unlock()
		inside.Add(-1)
	})
	owners := map[string]bool{}
	for _, lease := range leases {
		owners[lease.Owner()] = true
	}
	if len(owners) != len(tokens) {
		t.Errorf("%d owners of %d leases", len(owners), len(tokens))
	}
	t.increase(tokens)
	t.Free(t.Locker(), key)
}

func testHandOversShareTurns(t *T) {
	crowd, other, key := t.Locker(), t.Locker(), t.Key("k")
	first := t.Lock(crowd, key)
	var sections atomic.Int32
	stop := make(chan struct{})
	wait := t.Begin(4, func(int) {
		for {
			select {
			case <-stop:
				return
			default:
			}
			lease := t.Lock(crowd, key)
			sections.Add(1)
			t.Unlock(lease)
		}
	})
	w := t.Wait(other, key)
	t.Unlock(first)
	for range 3 {
		lease := t.Granted(w, t.Timing().PollWithin)
		before := sections.Load()
		next := t.Start(other, key)
		t.Unlock(lease)
		w = next
		if n := sections.Load() - before; n > 3*(1+16) {
			t.Errorf("%d sections of one Locker while another waited for its turn", n)
		}
	}
	close(stop)
	t.Unlock(t.Granted(w, t.Timing().PollWithin))
	wait()
}

func testTokenAfterHandOvers(t *T) {
	for name, harm := range map[string]func(context.Context, string) error{
		"nothing": func(context.Context, string) error { return nil }, "break": t.breaker().Break,
	} {
		l, other, key := t.Locker(brief), t.Locker(), t.Key(name)
		last := t.passOn(l, key, 6)
		t.NoError(harm(t.Context(), key), name)
		_ = last.Unlock(t.Context()) // ErrLost or nil: a loss may be known
		next, err := t.LockWithin(t.Timing().PollWithin, other, key)
		t.NoError(err, "Lock by another Locker")
		t.newer(next.Token(), last.Token())
		t.Unlock(next)
	}
}

// passOn passes a lock on n times, and returns the last lease.
func (t *T) passOn(l locker.Locker, key string, n int) *locker.Lease {
	t.Helper()
	lease := t.Lock(l, key)
	var waiting []*suite.Waiter
	for range n {
		waiting = append(waiting, t.Wait(l, key))
	}
	for _, w := range waiting {
		t.Unlock(lease)
		lease = t.Granted(w, t.Timing().PollWithin)
	}
	return lease
}

func testLossAfterHandOver(t *T) {
	every := t.Timing().RenewEvery
	l, key := t.Locker(locker.WithRenewInterval(every), brief), t.Key("k")
	// The second one's grant reserves the tokens for those after it.
	lease := t.Lock(l, key)
	var waiting []*suite.Waiter
	for range 3 {
		waiting = append(waiting, t.Wait(l, key))
	}
	t.Unlock(lease)
	lease = t.Granted(waiting[0], t.Timing().PollWithin)
	t.NoError(t.breaker().Break(t.Context(), key), "break")
	err := lease.Unlock(t.Context())
	lease = t.Granted(waiting[1], t.Timing().PollWithin)
	if err != nil { // it was not passed on, or the loss was known: the next grant is the store's
		t.Is(err, locker.ErrLost)
		t.NoError(t.breaker().Break(t.Context(), key), "break")
	}
	t.Ends(lease.Lost(), every+t.Timing().Slack, "the loss of the lease that the lock was passed on to")
	t.Is(lease.Unlock(t.Context()), locker.ErrLost)
	t.Unlock(t.Granted(waiting[2], t.Timing().PollWithin))
}

func testGivingUpAtHandOver(t *T) {
	l, key := t.Locker(brief), t.Key("k")
	t.Together(8, func(int) {
		for range 15 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(t.IntN(3000))*time.Microsecond)
			if lease, err := l.Lock(ctx, key); err == nil {
				t.Unlock(lease)
			} else if !errors.Is(err, locker.ErrUnavailable) { // an attempt may have been under way
				t.Is(err, locker.ErrNotAcquired)
			}
			cancel()
		}
	})
	t.FreeWithin(t.Timing().PollWithin, t.Locker(), key)
}

func testJoinedIsNotHandedOver(t *T) {
	l, other, key := t.Locker(brief), t.Locker(), t.Key("k")
	first := t.Lock(l, key)
	second, third := t.Wait(l, key), t.Wait(l, key)
	t.Unlock(first)
	lease, next := t.Granted(second, t.Timing().PollWithin), third
	shared, err := other.TryLock(locker.ContextWithOwner(t.Context(), lease.Owner()), key)
	if t.Unlock(lease); err != nil { // its owner is this Locker's own, as it may be handed over
		t.Is(err, locker.ErrNotAcquired)
		t.Taken(other, key)
		t.Unlock(t.Granted(next, t.Timing().PollWithin))
		return
	}
	t.Taken(t.Locker(), key)
	t.Open(next.Done(), "the wait for a lock that another Locker shares")
	t.Unlock(shared)
	t.Unlock(t.Granted(next, t.Timing().PollWithin))
}

func testKilledAfterHandOver(t *T) {
	ttl := t.Timing().ShortTTL
	child, l, key := t.child(), t.Locker(), t.Key("k")
	req := suite.ChildLock{Key: key, TTL: ttl}
	first := t.ChildLock(child, req)
	second, third := child.Start(req), child.Start(req)
	t.Ends(second.Waiting(), t.Timing().Patience, "a child waits")
	t.Ends(third.Waiting(), t.Timing().Patience, "a child waits")
	t.NoError(t.ChildUnlock(first), "a child's Unlock")
	next := second
	select {
	case <-second.Done():
	case <-third.Done():
		next = third
	case <-time.After(t.Timing().Patience):
		t.Fatalf("no waiter of the child was granted the key")
	}
	t.NoError(t.ChildUnlock(next), "a child's Unlock")
	child.Kill()
	t.Unlock(t.Granted(t.Start(l, key), ttl+t.Timing().PollWithin))
}

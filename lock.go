package locker

import (
	"errors"
	"fmt"
	"time"

	"github.com/distlock/locker/driver"
)

// tryLock is TryLock: one attempt, none if this process can answer by itself.
func (c *call) tryLock() (*Lease, error) {
	if l, err := c.local(); l != nil || err != nil {
		return l, err
	}
	cl := c.newClaim()
	a, sent, err := c.acquire(cl, false, 0)
	switch {
	case err != nil:
		return nil, c.unavailable(err, "")
	case a.Granted:
		switch l, err := c.grant(cl, a, sent); {
		case err == nil:
			return l, nil
		case !errors.Is(err, errMerge):
			return nil, c.unavailable(err, "")
		}
	}
	// The holder may be a goroutine with the same owner.
	if l, err := c.local(); l != nil || err != nil {
		return l, err
	}
	return nil, c.fail(ErrNotAcquired, errTaken, "")
}

// local answers TryLock without the store, if it can.
func (c *call) local() (*Lease, error) {
	c.s.mu.Lock()
	ks := c.s.keys[c.key]
	if ks == nil {
		c.s.mu.Unlock()
		return nil, nil
	}
	current, queue, late := ks.current, !ks.empty(), !ks.blocked(c.e.sched.Now())
	lost := ks.lostOf(c.owner)
	c.s.mu.Unlock()

	var mine *Lease
	switch {
	case current == nil:
	case !current.alive():
		if c.named && current.leaseOf(c.owner) != nil {
			return nil, c.lost(current)
		}
		current = nil // off the table, or about to be
	case current.releasing() && late:
		current = nil // the store decides
	case c.named:
		mine = current.leaseOf(c.owner)
	}
	switch {
	case c.named && lost != nil:
		return nil, c.lost(lost)
	case mine != nil:
		l, err := c.share(mine, true)
		switch {
		case errors.Is(err, errLeftBehind):
			return nil, nil
		case errors.Is(err, errGone):
			return nil, c.fail(ErrNotAcquired, errLocal, "")
		}
		return l, err
	case current != nil || queue && !(c.named && c.e.counter != nil):
		// (A named owner may hold from another process, and re-enter here.)
		return nil, c.fail(ErrNotAcquired, errLocal, "")
	}
	return nil, nil
}

// lock is Lock: first come, first served. The call joins the queue of its key and
// does what its turn there says, until it has a lease or an end.
func (c *call) lock() (*Lease, error) {
	ks := c.join()
	defer c.leave(ks)
	signalled := false
	for {
		m := c.turn(ks, signalled)
		signalled = false
		switch {
		case m.err != nil:
			return nil, m.err
		case m.failed != nil:
			return nil, c.unavailable(m.failed, "")
		case m.mine != nil:
			if l, err := c.share(m.mine, false); !errors.Is(err, errGone) {
				return l, err
			}
		case m.offered:
			if c.ended() {
				return nil, c.gaveUp(ks, false)
			}
			if l := c.take(ks); l != nil {
				return l, nil
			}
		case m.attempt:
			if l, err := c.attempt(ks, m); l != nil || err != nil {
				return l, err
			}
		default:
			var err error
			if signalled, err = c.park(ks, m); err != nil {
				return nil, err
			}
		}
	}
}

// move is what a waiting call is to do.
type move struct {
	err     error         // fail
	failed  error         // fail with the queue, whose trouble this is
	mine    *Lease        // re-enter it
	offered bool          // take the claim that is offered
	attempt bool          // ask the store
	tokens  int           // for how many holds
	watch   driver.Watch  // the key's, if any
	look    time.Duration // else wait until then
}

// turn says what the call's place in the queue allows.
func (c *call) turn(ks *keyState, signalled bool) move {
	c.s.mu.Lock()
	if cur := ks.current; cur != nil {
		// The clock is looked at outside the lock; a loss takes it.
		c.s.mu.Unlock()
		cur.alive()
		c.s.mu.Lock()
	}
	defer c.s.mu.Unlock()
	now, cur := c.e.sched.Now(), ks.current
	switch {
	case c.e.isClosed():
		return move{err: c.fail(ErrClosed, nil, "")}
	case c.failed != nil:
		return move{failed: c.failed} // what asks the caller's context is not done under the lock
	}
	if c.named {
		if lost := ks.lostOf(c.owner); lost != nil {
			return move{err: c.lost(lost)}
		}
		if cur != nil {
			if l := cur.leaseOf(c.owner); l != nil {
				return move{mine: l}
			}
		}
	}
	if cur != nil && ks.next() == c && cur.isOffered() {
		return move{offered: true}
	}
	// A waiter whose owner holds the key from another process joins that hold; in
	// turn it would wait for itself.
	joins := cur == nil && c.named && c.e.counter != nil && c.owner == ks.holder
	asks := joins || ks.next() == c && !ks.blocked(now)
	signalled, c.woken = signalled || c.woken, false
	switch {
	case asks && (signalled || now >= c.look):
		c.s.ask(ks, c, now)
		return move{attempt: true, watch: ks.watch, tokens: c.tokensFor(ks)}
	case asks:
		return c.waits(ks, move{watch: ks.watch, look: c.look})
	}
	c.s.guardTurn(ks, now)
	return c.waits(ks, move{look: never})
}

// waits readies the call for park; it needs s.mu.
func (c *call) waits(ks *keyState, m move) move {
	if c.wake == nil {
		c.wake = make(chan struct{}, 1)
	}
	select {
	case <-c.wake: // from before
	default:
	}
	if !c.waiting {
		c.waiting = true
		c.e.notices.event(c.ctx, c.event(EventWaiting, 0, nil))
	}
	return m
}

// park waits for a signal, a change in the queue or the time to look. It fails when
// the caller does not want to wait any more.
func (c *call) park(ks *keyState, m move) (signalled bool, err error) {
	var signal <-chan struct{}
	if m.watch != nil {
		signal = m.watch.C()
	}
	var look <-chan time.Time
	if m.look != never {
		timer := time.NewTimer(m.look - c.e.sched.Now())
		defer timer.Stop()
		look = timer.C
	}
	select {
	case <-c.wake:
	case _, ok := <-signal:
		if !ok {
			c.unwatch(ks, m.watch)
		}
		return true, nil
	case <-look:
	case <-c.e.closed:
		return false, c.fail(ErrClosed, nil, "")
	case <-c.ctx.Done():
		return false, c.gaveUp(ks, false)
	}
	return false, nil
}

// gaveUp is the error of a wait that the caller ended, and with it an attempt if
// asking.
func (c *call) gaveUp(ks *keyState, asking bool) error {
	c.s.mu.Lock()
	outage, now := ks.outage, c.e.sched.Now()
	if outage.since == 0 && (asking || ks.attempts > 0) {
		// An attempt is unanswered: trouble, unless it is just that the wait
		// was over a moment after it was sent. A store that has answered
		// before gets the benefit of the doubt for longer.
		patience := answerSoon
		if ks.answered {
			patience = answerLate
		}
		if now-ks.unanswered > patience {
			outage.failed(ks.unanswered, errNoAnswer)
			ks.outage = outage // the others in the queue need not find out for themselves
		}
	}
	hint := ""
	if ks.current != nil && !c.named {
		hint = "this Locker holds it; a Lock re-enters under the context of the lease, as Do gives it, and else waits for its Unlock"
	}
	c.s.mu.Unlock()
	if outage.since != 0 {
		return c.unavailable(outage.err, "")
	}
	why := c.ctxError()
	if why == nil {
		why = fmt.Errorf("not within %v", c.wait)
	}
	return c.fail(ErrNotAcquired, why, hint)
}

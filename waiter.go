package locker

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/distlock/locker/driver"
	"github.com/distlock/locker/internal/retry"
	"github.com/distlock/locker/internal/wake"
	"github.com/distlock/locker/renewal"
)

const never = renewal.Never

// lock does what Lock promises: first come, first served. The call joins the queue of its key and
// does what its turn there says, until it has a lease or an end.
func (c *call) lock() (*Lease, error) {
	signalled := false
	for {
		m := c.nextMove(signalled)
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
				return nil, c.gaveUp(false)
			}
			if l := c.accept(); l != nil {
				return l, nil
			}
			signalled = m.signalled
		case m.attempt:
			if l, err := c.attempt(m); l != nil || err != nil {
				return l, err
			}
		default:
			var err error
			if signalled, err = c.park(m); err != nil {
				return nil, err
			}
		}
	}
}

// move is the next step of a waiting call.
type move struct {
	err       error         // fail
	failed    error         // fail with the queue, whose trouble this is
	mine      *Lease        // re-enter it
	offered   bool          // accept the claim that is offered, or given to the call
	signalled bool          // the key's watch has signalled, and nobody has asked since
	attempt   bool          // ask the store
	tokens    int           // for how many tenures
	watch     driver.Watch  // of the key; nil: there is none
	pollAt    time.Duration // waits until then, also under a watch; never: until it is woken
}

// nextMove returns the next step that the call's place in the queue allows. Its first call joins
// the queue.
func (c *call) nextMove(signalled bool) move {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	if c.s.closed || !c.enter() {
		return move{err: c.fail(ErrClosed, nil, "")}
	}
	if c.ks == nil {
		c.ks = c.s.at(c.key)
		c.ks.push(c)
	}
	ks, cur, now := c.ks, c.ks.present(), c.e.sched.Now()
	c.blocked = false
	if c.given != nil {
		return move{offered: true, signalled: signalled}
	}
	if c.failed != nil {
		return move{failed: c.failed} // the caller's context is asked without the mutex
	}
	if c.named {
		switch mine, lost := ks.ofOwner(c.owner); {
		case lost != nil:
			return move{err: c.lost(lost.outcome())}
		case mine != nil && !c.mayJoin(mine.claim):
			return move{err: c.failPart()}
		case mine != nil:
			return move{mine: mine}
		}
	}
	if cur != nil && ks.next() == c && cur.offered() {
		return move{offered: true}
	}
	// A waiter whose owner holds the key from another process joins that hold. If it
	// waited for its turn, it would wait for its own owner.
	joins := cur == nil && c.limit == 0 && c.named && c.e.counter != nil && c.owner == ks.holder
	asks := joins || ks.next() == c && !ks.blocked(c, now)
	signalled, c.woken = signalled || c.woken, false
	switch {
	case asks && (signalled || now >= c.pollAt):
		c.s.ask(c, now)
		m := move{attempt: true, watch: ks.watch}
		if ks.head != ks.tail {
			m.tokens = c.tokensFor()
		}
		return m
	case asks:
		return c.waits(move{watch: ks.watch, pollAt: c.pollAt})
	}
	c.blocked = ks.next() == c
	c.s.guardQueue(ks, now)
	return c.waits(move{pollAt: never})
}

// waits readies the call for park. It needs the mutex.
func (c *call) waits(m move) move {
	if c.wake == nil {
		c.wake = wake.New()
	}
	select {
	case <-c.wake: // from before
	default:
	}
	if !c.reported && c.e.notices.wanted && c.isRefused() {
		c.reported = true
		c.e.notices.event(c.ctx, c.event(EventWaiting, 0, nil))
	}
	return m
}

// park waits for a signal, a change in the queue or the time to poll. It fails when
// the caller does not want to wait any more.
func (c *call) park(m move) (signalled bool, err error) {
	var signal <-chan struct{}
	if m.watch != nil {
		signal = m.watch.C()
	}
	var poll <-chan time.Time
	if m.pollAt != never {
		timer := time.NewTimer(m.pollAt - c.e.sched.Now())
		defer timer.Stop()
		poll = timer.C
	}
	select {
	case <-c.wake:
		if c.ended() { // those before it may have left for the same reason: it does not ask once more
			return false, c.gaveUp(false)
		}
	case _, ok := <-signal:
		if !ok {
			c.unwatch(m.watch)
		}
		return true, nil
	case <-poll:
	case <-c.e.closed:
		return false, c.fail(ErrClosed, nil, "")
	case <-c.ctx.Done():
		return false, c.gaveUp(false)
	}
	return false, nil
}

// gaveUp returns the error for a caller that stopped waiting; asking says that it had an
// attempt under way.
func (c *call) gaveUp(asking bool) error {
	heldHere, trouble := c.givingUp(asking)
	if trouble != nil {
		return c.unavailable(trouble, "")
	}
	hint := ""
	if heldHere && !c.named {
		hint = "this Locker holds it; a Lock re-enters under the context of the lease, which Do passes to its function; any other Lock waits for the Unlock"
	}
	why := c.ctxError()
	if why == nil {
		why = fmt.Errorf("not within %v", c.wait)
	}
	return c.fail(ErrNotAcquired, why, hint)
}

// givingUp returns whether this Locker holds the key, and the trouble with the store that the
// wait has come to, if any.
func (c *call) givingUp(asking bool) (heldHere bool, trouble error) {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	ks, now := c.ks, c.e.sched.Now()
	found := ks.outage
	if found.since == 0 && (asking || ks.attempts > 0) {
		// An attempt is unanswered: trouble, unless it is just that the wait
		// was over a moment after it was sent. A store that has answered
		// before gets the benefit of the doubt for longer.
		patience := answerSoon
		if ks.answered {
			patience = answerLate
		}
		if now-ks.unanswered > patience {
			found.failed(ks.unanswered, errNoAnswer)
			ks.outage = found // the others in the queue need not find out for themselves
		}
	}
	return ks.current != nil, found.err
}

// served ends the wait of a call that was granted the lock of ks. It needs the mutex.
func (c *call) served(ks *keyState) {
	ks.remove(c)
	ks.wakeNext()
	c.s.prune(ks)
	c.exit()
}

// leave ends the call. Unless it was served, it removes the call from the queue and wakes the
// next. The last to give up also closes the watch, and with it the place that the driver
// keeps for it.
func (c *call) leave() {
	if c.bid != "" {
		c.endBid()
	}
	if !c.queued && c.given != nil { // the store has granted it another claim
		c.passOn().freeUnclaimed()
	}
	if !c.entered {
		return
	}
	if c.queued {
		watch, unclaimed := c.dequeue()
		closeWatch(watch)
		unclaimed.freeUnclaimed()
		c.passOn().freeUnclaimed()
	}
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	c.exit()
}

// dequeue removes the call from the queue. It returns the watch to be closed, and the claim to
// be released.
func (c *call) dequeue() (watch driver.Watch, unclaimed *claim) {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	if c.asking { // the driver panicked
		c.s.asked(c)
	}
	ks := c.ks
	ks.remove(c)
	ks.wakeNext()
	if ks.empty() {
		watch, unclaimed = ks.endWatch(), ks.withdraw()
	}
	c.s.prune(ks)
	return watch, unclaimed
}

// enter counts the call among those that Close waits for. It reports false once the Locker is
// closed. It needs the mutex.
func (c *call) enter() bool {
	if c.s.closed && !c.entered {
		return false
	}
	if !c.entered {
		c.entered = true
		c.s.calls.Add(1)
	}
	return true
}

// mayEnter locks the mutex and calls enter.
func (c *call) mayEnter() bool {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	return c.enter()
}

// exit ends what enter began. It needs the mutex.
func (c *call) exit() {
	if c.entered {
		c.entered = false
		c.s.calls.Add(-1)
	}
}

// Waiters ask the store again after these pauses: pollAgain where a Watch signals releases, in case a
// signal is lost; pollMin, growing to pollMax, where none does. R15 bounds them.
const (
	pollAgain = time.Second
	pollMin   = 10 * time.Millisecond
	pollMax   = 100 * time.Millisecond
)

// A holder that was asked for a lock that it keeps gives it up about a round trip later. Waiters that poll look for it after
// a pause of a round trip at first, askedMin to askedMax. A pause of less than askedMax is left out: the next attempt takes a
// round trip in any case, and a shorter timer takes a millisecond where nothing else happens in the process. So on a
// near store a waiter that was refused sends some four commands in a row.
const (
	askedMin = 100 * time.Microsecond
	askedMax = time.Millisecond
)

// pauseFor returns how long the first in the queue waits after a refusal that took trip, if no signal comes. The
// pause is shorter if the holder's lease ends before.
func pauseFor(a driver.Answer, trip time.Duration, watched bool, poll *retry.Backoff) time.Duration {
	var d time.Duration
	if watched && !a.NoWakeUp {
		d = pollAgain - rand.N(pollAgain/5)
	} else {
		first, asked := pollMin, driver.MayBeUnused(a.Owner)
		if asked {
			first = min(max(trip, askedMin), askedMax)
		}
		if d = poll.Next(first, pollMax); asked && d < askedMax {
			d = 0
		}
	}
	if a.Remaining > 0 && a.Remaining < d {
		// The holder may be dead: ask when its lease is over, not all
		// waiters in the same instant.
		d = min(d, a.Remaining+time.Millisecond+rand.N(4*time.Millisecond))
	}
	return d
}

package locker

import (
	"context"
	"errors"
	"time"

	"github.com/distlock/locker/driver"
	"github.com/distlock/locker/renewal"
)

const never = renewal.Never

// join puts the call into the queue of its key.
func (c *call) join() *keyState {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	ks := c.s.at(c.key)
	ks.push(c)
	return ks
}

// leave takes the call off the queue, unless it was granted the lock, and passes
// the turn on. A watch, and the place that the driver keeps for it, ends with the
// last waiter that gives up.
func (c *call) leave(ks *keyState) {
	c.s.mu.Lock()
	var unwatch driver.Watch
	if c.asking { // the driver panicked
		c.s.asked(ks, c)
	}
	if c.queued {
		ks.remove(c)
		unwatch = c.s.prune(ks, false)
	}
	var untaken *claim
	if ks.empty() {
		untaken = ks.reclaim()
	}
	c.s.mu.Unlock()
	closeWatch(unwatch)
	untaken.freeUntaken()
}

// acquire asks the store once. What a command without an answer may have got is
// released in the background.
func (c *call) acquire(cl driver.Claim, wait bool, tokens int) (a driver.Answer, sent time.Duration, err error) {
	sent = c.e.sched.Now()
	err = c.command(min(commandTimeout, c.ttl), func(ctx context.Context) (err error) {
		a, err = c.e.driver.Acquire(ctx, driver.Request{Claim: cl, Fencing: !c.e.set.noFencing, Tokens: tokens, Short: c.renewsFreely(), Wait: wait})
		return err
	})
	if err != nil && driver.MaybeApplied(err) {
		c.e.cleanUp(cl, sent, false)
	}
	return a, sent, err
}

// renewsFreely reports whether the lease will be renewed by itself, as often as it
// takes: then a grant may last for less than the TTL to begin with.
func (c *call) renewsFreely() bool {
	return c.renewals == noLimit && c.maxHold == 0 && c.e.set.interval(&c.callSettings) > 0
}

// attempt asks the store in turn. It returns neither a lease nor an error when the
// call is to go on waiting; c.look says for how long.
func (c *call) attempt(ks *keyState, m move) (*Lease, error) {
	watch := m.watch
	if watch != nil {
		select {
		case _, ok := <-watch.C(): // a signal from before the attempt
			if !ok {
				c.unwatch(ks, watch)
				watch = nil
			}
		default:
		}
	}
	cl := c.newClaim()
	a, sent, err := c.acquire(cl, watch != nil, m.tokens)
	if err == nil && a.Granted {
		l, gerr := c.grant(cl, a, sent)
		switch {
		case errors.Is(gerr, ErrClosed):
			c.answered(ks, nil)
			return nil, c.fail(ErrClosed, nil, "")
		case !errors.Is(gerr, errLate): // granted, or to be re-entered
			c.answered(ks, nil)
			return l, nil
		}
		err = errLate // the store is too slow to be of use
	}
	c.answered(ks, err)
	switch {
	case errors.Is(err, ErrClosed):
		return nil, c.unavailable(err, "")
	case err != nil && c.ended():
		return nil, c.gaveUp(ks, true)
	case err != nil && driver.IsPermanent(err):
		return nil, c.unavailable(err, "")
	case err != nil:
		c.look = c.e.sched.Now() + c.retryPause.next(outagePauseMin, outagePauseMax)
		return nil, nil
	}
	c.retryPause = backoff{}
	c.refused(ks, a, watch)
	return nil, nil
}

// answered notes how the call's attempt ended.
func (c *call) answered(ks *keyState, err error) {
	ended := err != nil && c.ended()
	c.s.mu.Lock()
	c.s.asked(ks, c)
	switch {
	case err == nil:
		ks.outage, ks.answered = outage{}, true
		if ks.attempts > 0 {
			ks.unanswered = c.e.sched.Now()
		}
	case ended || errors.Is(err, ErrClosed):
		// The caller's or the Locker's own doing; gaveUp judges it.
	default:
		now := c.e.sched.Now()
		ks.outage.failed(now, err)
		ks.failQueue(now)
	}
	unwatch := c.s.prune(ks, true) // a call that was granted the lock may have been the last
	c.s.mu.Unlock()
	closeWatch(unwatch)
}

// refused says when to look again, and has the store tell of releases.
func (c *call) refused(ks *keyState, a driver.Answer, watch driver.Watch) {
	c.s.mu.Lock()
	now, first := c.e.sched.Now(), ks.next() == c
	if c.e.counter != nil && a.Owner != ks.holder {
		ks.holder = a.Owner
		ks.wakeOwner(a.Owner)
	}
	late := watch == nil && ks.watch != nil // it was opened meanwhile: ask once more, under it
	open := first && ks.watch == nil && !ks.opening && !a.NoWakeUp && c.e.notifier != nil && now >= ks.reopen
	if open {
		ks.opening = true
	}
	c.s.mu.Unlock()
	switch {
	case late || open && c.subscribe(ks):
		c.look = now
	case first:
		c.look = now + pauseFor(a, watch != nil, &c.pollPause)
	default:
		c.look = now + lookAgain
	}
}

// subscribe opens the key's watch; it reports false when the waiter has to poll.
func (c *call) subscribe(ks *keyState) bool {
	var w driver.Watch
	err, kept := errNoAnswer, false
	opened := func() {
		c.s.mu.Lock()
		defer c.s.mu.Unlock()
		ks.opening, ks.reopen = false, c.e.sched.Now()+lookAgain
		if kept = err == nil && !c.s.closed; kept {
			ks.watch = w
		}
	}
	func() {
		defer opened() // also if the driver panics
		err = c.command(watchTimeout, func(ctx context.Context) (err error) {
			w, err = c.e.notifier.Watch(ctx, c.key)
			return err
		})
	}()
	switch {
	case err != nil && c.ctx.Err() == nil:
		c.e.log.Debug("no signals for a waiter; it polls", "strategy", c.e.name, "err", err)
	case err == nil && !kept:
		w.Close()
	}
	return kept
}

// unwatch drops a watch that has ended by itself.
func (c *call) unwatch(ks *keyState, w driver.Watch) {
	c.s.mu.Lock()
	mine := ks.watch == w // else another waiter has seen it end
	if mine {
		ks.watch = nil
	}
	c.s.mu.Unlock()
	if mine {
		w.Close()
	}
}

// grant makes a lease of a granted attempt, and ends the call's wait. Where it
// fails (with errLate, errMerge or ErrClosed), the key is released in the
// background.
func (c *call) grant(cl driver.Claim, a driver.Answer, sent time.Duration) (*Lease, error) {
	e, now, lasts := c.e, c.e.sched.Now(), c.ttl
	cl.Token = a.Token
	if a.Claim != "" { // granted by a release, or to a later try of the driver
		sent = now - time.Since(a.Since)
		if cl.ID = a.Claim; !c.named {
			cl.Owner = cl.ID
		}
		if a.TTL > 0 {
			lasts = min(a.TTL, c.ttl)
		}
	}
	claim := &claim{Claim: cl, e: e, named: c.named,
		firstHold: hold{owner: cl.Owner, token: cl.Token, granted: now},
		deadline:  sent + validityOf(lasts), lasts: lasts, limit: never, next: never,
		renewals: c.renewals, renewable: c.renewals}
	claim.hold, claim.entry.Item = &claim.firstHold, claim
	if e.counter != nil {
		claim.turn = make(chan struct{}, 1)
	}
	claim.setTurn(a.Tokens)
	if i := e.set.interval(&c.callSettings); i > 0 {
		claim.entry.Interval = i
		claim.next = max(now, sent+i)
		if lasts < c.ttl {
			claim.next = max(now, min(claim.next, sent+lasts/2)) // soon, to the full TTL
		}
	}
	if c.maxHold > 0 {
		claim.limit = now + c.maxHold
	}
	l, err := claim.newLease(), errLate
	if end, _, _ := claim.ending(); now < end {
		err = c.s.install(claim, c)
	}
	if err != nil {
		e.cleanUp(cl, sent, true)
		return nil, err
	}
	return l, nil
}

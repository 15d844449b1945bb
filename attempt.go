package locker

import (
	"context"
	"errors"
	"time"

	"github.com/distlock/locker/driver"
	"github.com/distlock/locker/internal/retry"
)

// acquire asks the store once. A claim that an unanswered command may have been granted is
// released in the background. A lease that is renewed by itself, as often as it takes, may
// have a grant for less than its TTL to begin with.
func (c *call) acquire(cl driver.Claim, wait bool, tokens int) (a driver.Answer, sent time.Duration, err error) {
	sent = c.e.sched.Now()
	short := c.mayBeShort()
	req := driver.Request{Claim: cl, Fencing: !c.e.set.noFencing, Tokens: tokens, Short: short,
		Wait: wait, Waits: c.ks != nil, Waited: sent - c.began}
	req.TTL = c.ttl
	if c.e.set.sticky > 0 {
		c.askToKeep(&req)
	}
	err = c.command(min(commandTimeout, c.ttl), func(ctx context.Context) (err error) {
		a, err = c.e.driver.Acquire(ctx, req)
		return err
	})
	if err != nil && driver.MaybeApplied(err) {
		c.e.cleanUp(cl, sent, false)
	}
	if a.Limit != 0 {
		c.logLimit(a.Limit)
	}
	return a, sent, err
}

// mayBeShort reports whether a grant for less than the TTL will do.
func (c *call) mayBeShort() bool {
	return c.renewals == noLimit && c.maxHold == 0 && c.millis == 0 && c.e.set.interval(&c.callSettings) > 0
}

// attempt asks the store when it is the call's turn. It returns neither a lease nor an error when the
// call is to go on waiting; c.pollAt says until when.
func (c *call) attempt(m move) (*Lease, error) {
	watch := m.watch
	if watch != nil {
		select {
		case _, ok := <-watch.C(): // a signal from before the attempt
			if !ok {
				c.unwatch(watch)
				watch = nil
			}
		default:
		}
	}
	cl := c.newClaim()
	a, sent, err := c.acquire(cl, watch != nil, m.tokens)
	if err == nil {
		c.bid = "" // what was kept free for it
		if a.Bids {
			c.bid = cl.ID
		}
	}
	if err == nil && a.Granted {
		l, gerr := c.grant(cl, a, sent)
		switch {
		case gerr == nil:
			return l, nil
		case errors.Is(gerr, ErrClosed):
			c.answered(nil)
			return nil, c.fail(ErrClosed, nil, "")
		case errors.Is(gerr, errMerge), errors.Is(gerr, errOther): // to be re-entered, or asked for anew
			c.answered(nil)
			return nil, nil
		}
		err = errLate // the store is too slow to be useful
	}
	c.answered(err)
	switch {
	case errors.Is(err, ErrClosed):
		return nil, c.unavailable(err, "")
	case err != nil && c.ended():
		return nil, c.gaveUp(true)
	case err != nil && driver.IsPermanent(err):
		return nil, c.unavailable(err, "")
	case err != nil:
		c.pollAt = c.e.sched.Now() + c.retryPause.Next(outagePauseMin, outagePauseMax)
		return nil, nil
	}
	c.retryPause = retry.Backoff{}
	c.turnedAway = true
	c.askHolder(a)
	c.refused(a, watch, sent)
	return nil, nil
}

// answered notes how the call's attempt ended, if not by a grant.
func (c *call) answered(err error) {
	// The caller's or the Locker's own doing; gaveUp judges it.
	stopped := err != nil && (c.ended() || errors.Is(err, ErrClosed))
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	now := c.e.sched.Now()
	switch {
	case err == nil:
		c.ks.full = true // until a grant of permits
		c.s.heard(c, now)
	case stopped:
		c.s.asked(c)
	default:
		c.s.asked(c)
		c.ks.outage.failed(now, err)
		c.ks.fail(now)
	}
}

// refused sets when to poll after an attempt that was sent at sent, and opens a watch for releases. The first in the
// queue pauses as pauseFor says, the others for pollAgain.
func (c *call) refused(a driver.Answer, watch driver.Watch, sent time.Duration) {
	c.s.mu.Lock()
	ks, now := c.ks, c.e.sched.Now()
	first := ks.next() == c
	if c.e.counter != nil && a.Owner != ks.holder {
		ks.holder = a.Owner
		ks.wakeOwner(a.Owner)
	}
	// Another call has opened the watch during this attempt, and may have missed a release before.
	late := watch == nil && ks.watch != nil
	open := first && c.given == nil && ks.watch == nil && !ks.opening && !a.NoWakeUp && c.e.notifier != nil && now >= ks.reopen
	if open {
		ks.opening = true
	}
	c.s.mu.Unlock()
	switch {
	case late || open && c.subscribe():
		c.pollAt = now
	case first:
		c.pollAt = now + pauseFor(a, now-sent, watch != nil, &c.pollPause)
	default:
		c.pollAt = now + pollAgain
	}
}

// subscribe opens the key's watch; it reports false when the waiter has to poll.
func (c *call) subscribe() bool {
	var w driver.Watch
	err, kept := errNoAnswer, false
	opened := func() {
		c.s.mu.Lock()
		defer c.s.mu.Unlock()
		c.ks.opening, c.ks.reopen = false, c.e.sched.Now()+pollAgain
		if kept = err == nil && !c.s.closed; kept {
			c.ks.watch = w
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
func (c *call) unwatch(w driver.Watch) {
	c.s.mu.Lock()
	mine := c.ks.watch == w // else another waiter has seen it end
	if mine {
		c.ks.watch = nil
	}
	c.s.mu.Unlock()
	if mine {
		w.Close()
	}
}

// grant makes a lease of a granted attempt, and ends the call's wait. Where it
// fails (with errLate, errMerge, errOther or ErrClosed), the key is released in the
// background.
func (c *call) grant(cl driver.Claim, a driver.Answer, sent time.Duration) (*Lease, error) {
	e, now, lasts := c.e, c.e.sched.Now(), c.ttl
	if e.set.sticky > 0 {
		lasts = c.grantFor(c.mayBeShort())
	}
	cl.Token = a.Token
	if a.Claim != "" && metadataIn(a.Claim) != c.metadata { // an earlier call's, which has given up
		cl.ID = a.Claim
		e.cleanUp(cl, sent, true)
		return nil, errOther
	}
	if a.Claim != "" { // granted by a release, or to a later try of the driver
		sent = now - time.Since(a.Since)
		if cl.ID = a.Claim; c.owner == "" {
			cl.Owner = cl.ID
		}
		if a.TTL > 0 {
			lasts = min(a.TTL, c.ttl)
		}
	}
	claim := &claim{Claim: cl, e: e, s: c.s, named: c.named,
		firstTenure: tenure{owner: cl.Owner, token: cl.Token, granted: now},
		deadline:    sent + validityOf(lasts), lasts: lasts, next: never,
		renewals: c.renewals, renewable: c.renewals}
	claim.tenure, claim.entry.Item = &claim.firstTenure, claim
	if (a.Tokens > 1 || e.set.noFencing) && !c.described() {
		claim.setHandOvers(a.Tokens)
	}
	if e.set.sticky > 0 && a.Claim == "" && c.maySticky() {
		claim.mayKeep(a.Tokens)
	}
	if i := e.set.interval(&c.callSettings); i > 0 {
		claim.entry.Interval = i
		claim.next = max(now, sent+i)
		if lasts < c.ttl {
			claim.next = max(now, min(claim.next, sent+lasts/2)) // soon, to the full TTL
		}
	}
	if c.millis > 0 {
		claim.rarely().margin = c.margin()
		claim.deadline -= c.margin()
	}
	if c.maxHold > 0 {
		claim.rarely().limit = now + c.maxHold
	}
	l, err := claim.add(&claim.first), errLate
	if end, _, _ := claim.ending(); now < end {
		err = c.install(claim, a.Free)
	}
	if err != nil {
		e.cleanUp(cl, sent, true)
		return nil, err
	}
	if c.sticks {
		e.hears()
	}
	return l, nil
}

// errMerge and errOther say why a claim that was granted is not installed.
var (
	errMerge = errors.New("another goroutine of the same owner was granted the key")
	errOther = errors.New("the claim has the metadata of another call")
)

// install makes cl the key's claim, and ends the call's attempt and wait. It refuses with
// errLate when the Locker knows a later grant (cl's answer was late, cl is not the
// holder any more), with errMerge when cl's owner has a claim here already, and with
// ErrClosed. free is how many permits more the store has.
func (c *call) install(cl *claim, free int) error {
	s := c.s
	s.mu.Lock()
	defer s.mu.Unlock()
	var old *claim
	if ks := s.keys[cl.Key]; ks != nil {
		old = ks.current
		if len(ks.permits) > 0 && !ks.loseOthers(cl) {
			return errLate
		}
	}
	switch {
	case s.closed:
		return ErrClosed
	case old == nil:
	// Without fencing the order of the grants is unknown, as both can be valid only after a
	// break. The one that is answered later is kept: it ends by its own deadline or
	// denial, and the key stays taken until the TTL of the other, so no third is inside.
	case old.token > cl.token:
		return errLate
	case cl.named && c.e.counter != nil && old.Owner == cl.Owner && old.token == cl.token && old.state == claimHeld:
		return errMerge
	default:
		// The store granted the key anew, so it has lost the old claim.
		old.lose(lossDenied, ErrDenied).run()
	}
	if c.e.notices.wanted { // before its loss can be
		cl.grantKept = c.e.notices.event(c.ctx, c.event(EventAcquired, cl.token, nil))
	}
	if cl.rare != nil {
		c.sticks = cl.installed()
	}
	cl.schedule()
	if c.e.detection != nil {
		cl.detect()
	}
	ks := s.at(cl.Key)
	if cl.Limit == 0 {
		ks.current = cl
	} else {
		ks.hold(cl, free, c)
	}
	ks.outage, ks.holder = outage{}, ""
	if c.asking {
		s.heard(c, c.e.sched.Now())
	}
	if cl.named {
		ks.wakeOwner(cl.Owner)
	}
	c.served(ks)
	return nil
}

// interval returns the time between renewals; 0 for none.
func (s *settings) interval(c *callSettings) time.Duration {
	switch {
	case c.renewals == 0:
		return 0
	case s.renewInterval > 0:
		return s.renewInterval
	case c.millis > 0:
		return min(c.ttl/3, riskAfter(c.ttl, c.margin())*3/4)
	}
	return c.ttl / 3
}

// validityOf returns how long a lease lasts for its holder: less than in the store, whose
// clock may be faster.
func validityOf(ttl time.Duration) time.Duration { return ttl - ttl/100 - 2*time.Millisecond }

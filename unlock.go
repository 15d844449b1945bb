package locker

import (
	"context"

	"github.com/distlock/locker/driver"
)

// duty is what an Unlock owes the store.
type duty uint8

const (
	dutyNone    duty = iota
	dutyCount        // the new hold count
	dutyRelease      // freeing the key
	dutyTidy         // the same, in the background: Unlock's answer is known
)

// Unlock gives the lease back; the last lease of an acquisition frees the key.
// It does not need ctx alive: under a live one it returns by ctx's end at the
// latest while the release goes on in the background, under a dead one it
// takes up to 5 s. Where ctx is the lease's own context or derives from it, its
// parent counts instead.
//
// It returns nil when the hold was given back, and [ErrNotHeld] when the lease was
// unlocked before. It returns [ErrLost] when the lease had ended before: another owner may
// have been inside, unless [WithMaxHold] or [WithMaxRenewals] ended it, whose key is
// freed early. It returns [ErrUnavailable] when no answer came: then it may be called
// again, and the TTL frees the key in any case. It works after Close of the Locker, too.
//
// Where another goroutine waits for the lock, Unlock may hand it over inside the
// process, see [WithHandOver], and does not ask the store: then nil means that no loss
// was known.
func (l *Lease) Unlock(ctx context.Context) error {
	switch {
	case l.zero():
		return errZeroLease("Unlock")
	case ctx == nil:
		return invalid("Unlock needs a context; it need not be alive")
	}
	c := l.claim
	s := c.e.stripeOf(c.Key)
	s.enter(true)
	defer s.exit()
	ctxs, err := l.beginUnlock()
	if err != nil {
		return err
	}
	defer l.mayUnlockAgain()   // if the driver panics
	ctxs.end(context.Canceled) // the section is over before the next one begins
	if s.offer(ctx, l) {
		return nil
	}
	d, answer := l.decide()
	switch d {
	case dutyNone:
		return answer
	case dutyTidy:
		c.e.cleanUp(c.Claim, c.e.sched.Now(), true)
		return answer
	case dutyRelease:
		ks := s.beginRelease(c)
		defer s.endRelease(ks, c)
	}
	wait, cancel := l.untied(ctx)
	defer cancel()
	if wait.Err() != nil {
		wait = context.WithoutCancel(wait)
	}
	if d == dutyCount {
		err = c.sendCount(wait)
	} else {
		err = c.sendRelease(wait, ctx)
	}
	return l.conclude(wait.Err(), err, answer)
}

// beginUnlock takes the lease's contexts. It fails if an Unlock is under way or was
// answered. From here on the lease is not re-entered.
func (l *Lease) beginUnlock() (leaseContexts, error) {
	l.claim.alive()
	l.claim.mu.Lock()
	if l.state == leaseUnlocking || l.state == leaseDone {
		l.claim.mu.Unlock()
		return nil, l.notHeld("unlock")
	}
	ctxs := l.ctxs
	l.ctxs, l.state = nil, leaseUnlocking
	l.claim.mu.Unlock()
	return ctxs, nil
}

// mayUnlockAgain ends an Unlock that has come to no end.
func (l *Lease) mayUnlockAgain() {
	l.claim.mu.Lock()
	defer l.claim.mu.Unlock()
	if l.state == leaseUnlocking {
		l.state = leaseLeft
	}
}

// decide takes the lease off its claim and says what the store is owed, and what
// Unlock answers if it gets that:
//
//	claim           last lease  owed               answer
//	held            no          its count (1)      nil
//	held            yes         release            nil, or the loss that the release finds
//	being released  yes (2)     release            likewise
//	freed           yes (2)     nothing            what the release in the background found
//	lost: denied    any         nothing            the loss
//	lost: expired   yes         release, tidily    the loss
//	lost: a limit   yes         release            the loss
//	lost: Close     yes         release            nil
//	lost, not so    no          nothing            the loss; nil after Close
//
// (1) only to a HoldCounter. (2) Unlock is called again after ErrUnavailable.
//
// From here on no other lease re-enters a claim whose last lease this was, and it is
// not renewed. A renewal under way is harmless: the store checks the claim's id.
func (l *Lease) decide() (d duty, answer error) {
	c := l.claim
	c.mu.Lock()
	if c.drop(l) {
		l.last = c.leases == nil
	}
	forget := c.state == claimLost && l.last
	switch {
	case c.state == claimHeld && l.last:
		c.state = claimReleasing
		c.end.Store(int64(never))
		c.e.sched.Remove(&c.entry)
		d = dutyRelease
	case c.state == claimHeld && c.e.counter != nil:
		d = dutyCount
	case c.state == claimReleasing && l.last:
		d = dutyRelease
	case c.state == claimFreed && l.last:
		answer = c.outcome
	case c.state == claimLost:
		d, answer = c.owedWhenLost(l.last)
	}
	if d == dutyNone || d == dutyTidy {
		l.state = leaseDone
	}
	c.mu.Unlock()
	if forget {
		c.e.stripeOf(c.Key).forgetLost(c)
	}
	return d, answer
}

func (c *claim) owedWhenLost(last bool) (d duty, answer error) {
	if answer = c.outcome; c.lossKind == lossClosed {
		answer = nil
	}
	switch {
	case !last || c.lossKind == lossDenied:
		return dutyNone, answer
	case c.lossKind == lossExpired:
		return dutyTidy, answer
	}
	return dutyRelease, answer
}

// sendCount and sendRelease give the store what it is owed, trying again until ctx ends
// or the budget of an Unlock is spent. What has not been settled by then goes on in the
// background.
// So it does after a panic of the driver's.
func (c *claim) sendCount(ctx context.Context) (err error) {
	err = errNoAnswer
	defer func() {
		if !isSettled(err) {
			c.e.correctHolds(c)
		}
	}()
	err = c.e.retry(ctx, c.syncHolds)
	return err
}

// The caller's own context is what events are told with.
func (c *claim) sendRelease(ctx, caller context.Context) (err error) {
	err = errNoAnswer
	defer func() {
		if isSettled(err) {
			c.settleRelease(caller, err)
		} else {
			c.e.freeLater(caller, c)
		}
	}()
	err = c.e.retry(ctx, c.free)
	return err
}

// free sends one release of the claim.
func (c *claim) free(ctx context.Context) error {
	if err := c.takeTurn(ctx, releaseTimeout); err != nil {
		return err
	}
	defer c.passTurn()
	c.mu.Lock()
	if c.state == claimFreed {
		defer c.mu.Unlock()
		return c.outcome // by the release in the background, or by another Unlock
	}
	inTime := c.e.sched.Now() < c.deadline
	if inTime {
		c.releases++
	}
	c.mu.Unlock()
	err := c.e.driver.Release(ctx, c.Claim)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil && inTime && !driver.MaybeApplied(err) {
		c.releases--
	}
	if isLost(err) {
		if c.releases > 0 {
			return nil // one that was sent in time, and whose answer did not come, was applied
		}
		return &lossError{c.e.name, c.userKey(), ErrDenied}
	}
	return err
}

// settleRelease notes what came of a release in the end, and tells the first such end.
func (c *claim) settleRelease(ctx context.Context, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state != claimReleasing {
		return // lost, which was told, or settled before
	}
	kind := EventReleaseFailed
	switch {
	case err == nil:
		kind = EventReleased
	case isLost(err):
		kind = EventLost
	}
	if kind != EventReleaseFailed {
		c.state, c.outcome = claimFreed, err
	}
	if !c.told {
		c.told = true
		if kind == EventReleaseFailed {
			err = c.unavailable("unlock", err)
		}
		c.e.notices.end(ctx, c.event(kind, err), c.grantKept)
	}
}

// conclude makes the answer of Unlock of what sending came to; end is why its wait
// ended, if it did.
func (l *Lease) conclude(end, err, answer error) error {
	l.claim.mu.Lock()
	defer l.claim.mu.Unlock()
	l.state = leaseDone
	switch {
	case err == nil:
		return answer
	case isLost(err):
		if answer != nil {
			return answer
		}
		return err
	}
	l.state = leaseLeft
	hint := "the release goes on in the background; Unlock may be called again; the TTL frees the key in any case"
	if driver.IsPermanent(err) {
		hint = "Unlock may be called again; the TTL frees the key in any case"
	}
	if end != nil {
		err = end
	} else {
		err = withoutContextErrors(err)
	}
	return l.fail("unlock", ErrUnavailable, err, hint)
}

// beginRelease notes that a release of c is sent, and endRelease that it was
// answered or left behind: whatever came of it, the queue of the key goes on.
func (s *stripe) beginRelease(c *claim) *keyState {
	s.mu.Lock()
	defer s.mu.Unlock()
	ks := s.keys[c.Key]
	if ks == nil || ks.current != c {
		return nil
	}
	s.at(c.Key)
	now := c.e.sched.Now()
	ks.releases++
	ks.begun = now
	if s.guardTurn(ks, now); !ks.blocked(now) {
		ks.wakeNext() // the TTL has freed the key
	}
	return ks
}

func (s *stripe) endRelease(ks *keyState, c *claim) {
	if ks == nil {
		return
	}
	s.mu.Lock()
	ks.releases--
	ks.wakeNext()
	s.mu.Unlock()
	s.detach(c)
}

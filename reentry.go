package locker

import (
	"context"
	"errors"
	"fmt"

	"github.com/distlock/locker/driver"
	"github.com/distlock/locker/internal/bound"
)

// errGone says that a claim was given back before it could be re-entered.
var errGone = errors.New("the claim was given back")

// reenter adds a lease to the claim that the given lease is on. It fails with errGone if the claim was
// given back meanwhile. It retries after trouble as an attempt does, unless try.
func (c *call) reenter(of *Lease, try bool) (*Lease, error) {
	cl := of.claim
	var trouble outage
	for {
		l, err := c.addHold(cl, of.tenure)
		now := c.e.sched.Now()
		switch {
		case err == nil, errors.Is(err, errGone):
			return l, err
		case isLost(err) && !c.e.closing.Load():
			return nil, c.lost(err)
		case isLost(err), errors.Is(err, ErrClosed):
			return nil, c.fail(ErrClosed, nil, "")
		}
		trouble.failed(now, err)
		if try || driver.IsPermanent(err) || trouble.over(now, cl.TTL) ||
			!bound.Sleep(c.ctx, c.e.closed, c.retryPause.Next(outagePauseMin, outagePauseMax)) {
			if c.e.closing.Load() {
				err = ErrClosed
			}
			return nil, c.unavailable(err, "while re-entering")
		}
	}
}

// errReadersLost says that the readers' claim was lost before a reader could share it.
var errReadersLost = fmt.Errorf("the readers' lease was lost: %w", errGone)

// share re-enters the hold of a lease of the call's owner, whom a name makes the same. A
// reader that meets a loss there is no part of what was lost: it fails with errReadersLost, and
// the store decides.
func (c *call) share(of *Lease, try bool) (*Lease, error) {
	l, err := c.reenter(of, try)
	if c.owner == readers && isLost(err) && !of.claim.alive() { // not for the loss that has ended the caller's context
		return nil, errReadersLost
	}
	return l, err
}

// addHold adds a lease to the tenure t of cl. A store that keeps counts learns of it first.
func (c *call) addHold(cl *claim, t *tenure) (*Lease, error) {
	if !cl.counted() {
		return cl.addLease(t)
	}
	limit, began := min(commandTimeout, cl.TTL), c.e.sched.Now() // the time of one attempt
	if err := cl.lockCounts(c.ctx, limit); err != nil {
		return nil, err
	}
	defer cl.unlockCounts() // until then there is no hand-over
	holds, err := cl.heldTimes(t)
	if err != nil {
		return nil, err
	}
	err = c.command(limit-(c.e.sched.Now()-began), func(ctx context.Context) error {
		return c.e.counter.SetHolds(ctx, cl.Claim, holds+1)
	})
	switch {
	case isLost(err):
		_ = cl.denied()
	case err != nil:
		if driver.MaybeApplied(err) {
			c.e.correctHolds(cl)
		}
		return nil, err
	}
	return cl.addLease(t)
}

// addLease adds a lease if the claim is held by the tenure t; else it fails as heldBy does.
func (c *claim) addLease(t *tenure) (*Lease, error) {
	defer c.lock().Unlock()
	if err := c.heldBy(t); err != nil {
		return nil, err
	}
	return c.add(new(Lease)), nil
}

// heldTimes returns how many leases the claim has if it is held by the tenure t; else it fails
// as heldBy does.
func (c *claim) heldTimes(t *tenure) (int, error) {
	defer c.lock().Unlock()
	return c.holds(), c.heldBy(t)
}

// heldBy returns nil if the claim is held by the tenure t; else the loss, or errGone. It needs
// the mutex.
func (c *claim) heldBy(t *tenure) error {
	switch {
	case c.state == claimLost:
		return c.outcome()
	case c.state == claimHeld && c.tenure == t && c.leases != nil:
		return nil
	}
	return errGone
}

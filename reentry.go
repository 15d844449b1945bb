package locker

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/distlock/locker/driver"
)

// errGone says that a claim was given back before it could be re-entered.
var errGone = errors.New("the claim was given back")

// reenter adds a lease to the hold of the lease of. It fails with errGone if that was
// given back meanwhile, and rides out trouble as an attempt does, unless try.
func (c *call) reenter(of *Lease, try bool) (*Lease, error) {
	cl := of.claim
	var trouble outage
	for {
		l, err := c.addHold(cl, of.hold.number)
		now := c.e.sched.Now()
		switch {
		case err == nil, errors.Is(err, errGone):
			return l, err
		case isLost(err) && !c.e.isClosed():
			return nil, c.lost(cl)
		case isLost(err), errors.Is(err, ErrClosed):
			return nil, c.fail(ErrClosed, nil, "")
		}
		trouble.failed(now, err)
		if try || driver.IsPermanent(err) || trouble.over(now, cl.TTL) ||
			!sleep(c.ctx, c.e.closed, c.retryPause.next(outagePauseMin, outagePauseMax)) {
			if c.e.isClosed() {
				err = ErrClosed
			}
			return nil, c.unavailable(err, "while re-entering")
		}
	}
}

// addHold adds a lease to cl, telling the store first if it keeps counts.
func (c *call) addHold(cl *claim, hold int) (*Lease, error) {
	if cl.alive(); c.e.counter == nil {
		return cl.addLease(hold)
	}
	if err := cl.takeTurn(c.ctx, min(commandTimeout, cl.TTL)); err != nil {
		return nil, err
	}
	defer cl.passTurn()
	holds, present, err := cl.holdsIfHeld()
	switch {
	case err != nil:
		return nil, err
	case present != hold: // (which stays: without this turn there is no hand-over)
		return nil, errGone
	}
	err = c.command(min(commandTimeout, cl.TTL), func(ctx context.Context) error {
		return c.e.counter.SetHolds(ctx, cl.Claim, holds+1)
	})
	switch {
	case isLost(err):
		cl.denied()
	case err != nil:
		if driver.MaybeApplied(err) {
			c.e.correctHolds(cl)
		}
		return nil, err
	}
	cl.alive()
	return cl.addLease(hold)
}

// addLease adds a lease if the claim is held by that hold; else it fails with the loss
// or with errGone.
func (c *claim) addLease(hold int) (*Lease, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.state == claimLost:
		return nil, c.loss
	case c.state == claimHeld && c.number == hold && len(c.leases) > 0:
		return c.newLease(), nil
	}
	return nil, errGone
}

// holdsIfHeld is how many leases the claim has, and the number of the present hold; it
// fails like addLease.
func (c *claim) holdsIfHeld() (leases, hold int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch c.state {
	case claimHeld:
		return len(c.leases), c.number, nil
	case claimLost:
		return 0, 0, c.loss
	}
	return 0, 0, errGone
}

// takeTurn waits, at most for d, until no other SetHolds or Release of the claim is
// under way. Without a HoldCounter there is nothing to wait for.
func (c *claim) takeTurn(ctx context.Context, d time.Duration) error {
	if c.op == nil {
		return nil
	}
	select {
	case c.op <- struct{}{}:
		return nil
	default:
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	why := errNoAnswer
	select {
	case c.op <- struct{}{}:
		return nil
	case <-timer.C:
	case <-ctx.Done():
		why = ctx.Err()
	case <-c.e.closed:
		why = ErrClosed
	}
	return &driver.StoreError{Err: why, NotApplied: true}
}

func (c *claim) passTurn() {
	if c.op != nil {
		<-c.op
	}
}

// syncHolds tells the store how many holds the claim has, unless it has ended.
func (c *claim) syncHolds(ctx context.Context) error {
	if err := c.takeTurn(ctx, releaseTimeout); err != nil {
		return err
	}
	defer c.passTurn()
	holds, _, err := c.holdsIfHeld()
	if err != nil || holds == 0 {
		return nil
	}
	err = c.e.counter.SetHolds(ctx, c.Claim, holds)
	if isLost(err) {
		c.denied()
		return cmp.Or(c.lossOf(), err)
	}
	return err
}

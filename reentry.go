package locker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/distlock/locker/driver"
	"github.com/distlock/locker/internal/bound"
)

// errGone says that a claim was given back before it could be re-entered.
var errGone = errors.New("the claim was given back")

// reenter adds a lease to the hold of the lease of. It fails with errGone if that was
// given back meanwhile, and rides out trouble as an attempt does, unless try.
func (c *call) reenter(of *Lease, try bool) (*Lease, error) {
	cl := of.claim
	var trouble outage
	for {
		l, err := c.addHold(cl, of.hold)
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
			!bound.Sleep(c.ctx, c.e.closed, c.retryPause.next(outagePauseMin, outagePauseMax)) {
			if c.e.isClosed() {
				err = ErrClosed
			}
			return nil, c.unavailable(err, "while re-entering")
		}
	}
}

// errLeftBehind says that the readers' claim was lost before a reader could share it.
var errLeftBehind = fmt.Errorf("the readers' lease was lost: %w", errGone)

// share re-enters the hold of a lease of the call's owner, whom a name makes the same. A
// reader that meets a loss there is no part of what was lost: it fails with errLeftBehind, and
// the store decides.
func (c *call) share(of *Lease, try bool) (*Lease, error) {
	l, err := c.reenter(of, try)
	if c.owner == readers && isLost(err) {
		return nil, errLeftBehind
	}
	return l, err
}

// addHold adds a lease to cl, telling the store first if it keeps counts.
func (c *call) addHold(cl *claim, h *hold) (*Lease, error) {
	if cl.alive(); c.e.counter == nil {
		return cl.addLease(h)
	}
	if err := cl.takeTurn(c.ctx, min(commandTimeout, cl.TTL)); err != nil {
		return nil, err
	}
	defer cl.passTurn()
	holds, present, err := cl.holdsIfHeld()
	switch {
	case err != nil:
		return nil, err
	case present != h: // (which stays: without this turn there is no hand-over)
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
	return cl.addLease(h)
}

// addLease adds a lease if the claim is held by that hold; else it fails with the loss
// or with errGone.
func (c *claim) addLease(h *hold) (*Lease, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.state == claimLost:
		return nil, c.outcome
	case c.state == claimHeld && c.hold == h && c.leases != nil:
		return c.newLease(), nil
	}
	return nil, errGone
}

// holdsIfHeld is how many leases the claim has, and its present hold; it fails like
// addLease.
func (c *claim) holdsIfHeld() (leases int, h *hold, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch c.state {
	case claimHeld:
		return c.holds(), c.hold, nil
	case claimLost:
		return 0, nil, c.outcome
	}
	return 0, nil, errGone
}

// takeTurn waits, at most for d, until no other SetHolds or Release of the claim is
// under way, so that the absolute counts they send arrive in order. Without a
// HoldCounter there is nothing to wait for.
func (c *claim) takeTurn(ctx context.Context, d time.Duration) error {
	if c.e.counter == nil {
		return nil
	}
	select {
	case c.turn <- struct{}{}:
		return nil
	default:
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	why := errNoAnswer
	select {
	case c.turn <- struct{}{}:
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
	if c.e.counter != nil {
		<-c.turn
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

package locker

import (
	"cmp"
	"context"
	"time"

	"github.com/distlock/locker/driver"
)

// The commands that change how often a claim is held in the store, SetHolds and Release, are
// sent one at a time, so that the absolute counts arrive in order.

// takeTurn waits, at most for d, until no other SetHolds or Release of the claim is under way.
// Without a HoldCounter there is nothing to wait for.
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

// syncHolds sends the store the number of the claim's holds, unless the claim has ended.
func (c *claim) syncHolds(ctx context.Context) error {
	if err := c.takeTurn(ctx, releaseTimeout); err != nil {
		return err
	}
	defer c.passTurn()
	c.s.mu.Lock()
	held, holds := c.state == claimHeld, c.holds()
	c.s.mu.Unlock()
	if !held || holds == 0 {
		return nil
	}
	err := c.e.counter.SetHolds(ctx, c.Claim, holds)
	if isLost(err) {
		return cmp.Or(c.denied(), err)
	}
	return err
}

// free sends one release of the claim.
func (c *claim) free(ctx context.Context) error {
	if err := c.takeTurn(ctx, releaseTimeout); err != nil {
		return err
	}
	defer c.passTurn()
	c.s.mu.Lock()
	if c.state == claimFreed {
		defer c.s.mu.Unlock()
		return c.outcome // by the release in the background, or by another Unlock
	}
	inTime := c.e.sched.Now() < c.deadline
	if inTime {
		c.releases++
	}
	c.s.mu.Unlock()
	err := c.e.driver.Release(ctx, c.Claim)
	if err == nil {
		return nil
	}
	lost, refused := isLost(err), !driver.MaybeApplied(err)
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	if inTime && refused {
		c.releases--
	}
	switch {
	case !lost:
		return err
	case c.releases > 0:
		return nil // one that was sent in time, and whose answer did not come, was applied
	}
	return &lossError{c.e.name, c.userKey(), ErrDenied}
}

package locker

import (
	"cmp"
	"context"
	"time"

	"github.com/distlock/locker/driver"
)

// The commands that change how often a claim is held in the store, SetHolds and Release, are
// sent one at a time, so that the absolute counts arrive in order.

// counted reports whether the store counts the claim's holds.
func (c *claim) counted() bool { return c.e.counter != nil && c.Limit == 0 }

// takeTurn waits, at most for d, until no other SetHolds or Release of the claim is under way.
// It needs a HoldCounter.
func (c *claim) takeTurn(ctx context.Context, d time.Duration) error {
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

// passTurn ends what takeTurn began.
func (c *claim) passTurn() { <-c.turn }

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

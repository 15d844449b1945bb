package locker

import (
	"cmp"
	"context"
	"time"

	"github.com/distlock/locker/driver"
	"github.com/distlock/locker/internal/bound"
)

// The commands that change how often a claim is held in the store, SetHolds and Release, are
// sent one at a time, so that the absolute counts arrive in order.

// counted reports whether the store counts the claim's holds.
func (c *claim) counted() bool { return c.e.counter != nil && c.Limit == 0 }

// takeTurn waits, at most for d, until no other SetHolds or Release of the claim is under way.
// It needs a HoldCounter.
func (c *claim) takeTurn(ctx context.Context, d time.Duration) error {
	turn := c.tryTurn()
	if turn == nil {
		return nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	for why := errNoAnswer; ; {
		select {
		case <-turn:
			if c.tryTurn() == nil {
				return nil
			}
			continue
		case <-timer.C:
		case <-ctx.Done():
			why = bound.End(ctx)
		case <-c.e.closed:
			why = ErrClosed
		}
		return &driver.StoreError{Err: why, NotApplied: true}
	}
}

// tryTurn takes the turn and returns nil, or returns the channel that gets an element when the turn
// may be free. Each end of a turn puts one there, so one of those that wait always comes to look.
func (c *claim) tryTurn() <-chan struct{} {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	if !c.sending {
		c.sending = true
		return nil
	}
	r := c.rarely()
	if r.turn == nil {
		r.turn = make(chan struct{}, 1)
	}
	return r.turn
}

// passTurn ends what takeTurn began.
func (c *claim) passTurn() {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	c.sending = false
	if c.rare != nil && c.rare.turn != nil {
		select {
		case c.rare.turn <- struct{}{}:
		default:
		}
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

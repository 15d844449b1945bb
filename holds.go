package locker

import (
	"cmp"
	"context"
	"time"

	"github.com/distlock/locker/driver"
	"github.com/distlock/locker/internal/bound"
	"github.com/distlock/locker/internal/wake"
)

// The commands that change how often a claim is held in the store, SetHolds and Release, are
// sent one at a time, so that the absolute counts arrive in order.

// counted reports whether the store counts the claim's holds.
func (c *claim) counted() bool { return c.e.counter != nil && c.Limit == 0 }

// lockCounts waits, at most for d, until no other SetHolds or Release of the claim is under way.
// It needs a HoldCounter.
func (c *claim) lockCounts(ctx context.Context, d time.Duration) error {
	free := c.tryLockCounts()
	if free == nil {
		return nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	for why := errNoAnswer; ; {
		select {
		case <-free:
			if c.tryLockCounts() == nil {
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

// tryLockCounts returns nil if it has locked the counts; else a channel to which each unlockCounts sends, so
// that one of those that wait always tries again.
func (c *claim) tryLockCounts() <-chan struct{} {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	if !c.sending {
		c.sending = true
		return nil
	}
	r := c.rarely()
	if r.countsFree == nil {
		r.countsFree = wake.New()
	}
	return r.countsFree
}

// unlockCounts ends what lockCounts began.
func (c *claim) unlockCounts() {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	c.sending = false
	if c.rare != nil {
		c.rare.countsFree.Send()
	}
}

// syncHolds sends the store the number of the claim's holds, unless the claim has ended.
func (c *claim) syncHolds(ctx context.Context) error {
	if err := c.lockCounts(ctx, releaseTimeout); err != nil {
		return err
	}
	defer c.unlockCounts()
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

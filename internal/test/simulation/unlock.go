package simulation

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/distlock/locker"
)

// unlock gives the lease back, in one of the ways in which users do.
func (c *caller) unlock(h *hold) {
	own := h.lease.Context(context.Background())
	h.ends("Unlock")
	ctx, cancel := context.Background(), func() {}
	switch way := c.r.IntN(12); way {
	case 0:
		ctx, cancel = context.WithCancel(ctx)
		cancel() // it need not be alive
	case 1:
		ctx, cancel = context.WithTimeout(ctx, c.r.upTo(50*time.Millisecond).Truncate(c.w.grain)+1)
	case 2:
		ctx = own
	case 3:
		c.unlockTwice(h)
		return
	case 4:
		c.letExpire(h)
		return
	default:
		if c.w.foreign && way < 8 {
			ctx = detached{ctx, time.Now().Add(c.r.upTo(50 * time.Millisecond))}
		}
	}
	defer cancel()
	for range 4 {
		err := c.unlockOnce(ctx, h)
		if !errors.Is(err, locker.ErrUnavailable) {
			c.wantNotHeld(h)
			return
		}
		if c.r.oneIn(3) {
			return // the TTL frees the key
		}
		ctx = context.Background()
	}
}

// unlockOnce calls Unlock, and checks its time and its answer.
func (c *caller) unlockOnce(ctx context.Context, h *hold) error {
	limit := 5 * time.Second // the budget
	deadline, ends := endsBy(ctx)
	if ends && ctx.Err() == nil && h.slow == 0 { // a context that ends during h.slow bounds nothing
		limit = min(limit, time.Until(deadline))
	}
	began := c.w.now()
	err := h.lease.Unlock(ctx)
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	c.w.result.Operations++
	took := c.w.now() - began - h.slow
	c.w.note("caller %d: Unlock of %s, token %d: %v", c.n, h.key, h.token, errText(err))
	if took > limit+50*time.Millisecond {
		c.w.violated("%v: Unlock took %v, want %v at most", h, took, limit)
	}
	switch {
	case err == nil, errors.Is(err, locker.ErrNotHeld):
	case errors.Is(err, locker.ErrLost):
		if c.w.calm && !h.lost && !h.mayBeOver() {
			c.w.violated("%v: Unlock: %v, though nothing is wrong", h, err)
		}
		if !h.lost && !h.mayBeOver() && !c.p.twice.Load() && !c.w.broken(h.key, h.since, c.w.now()) && time.Now().Before(h.until) {
			c.w.violated("%v: Unlock: %v, though it was held when Unlock was called, and nobody has taken it away", h, err)
		}
	case errors.Is(err, locker.ErrUnavailable):
		if c.w.calm && !ends {
			c.w.violated("%v: Unlock: %v, though nothing is wrong", h, err)
		}
	default:
		c.w.violated("%v: Unlock: %v", h, err)
	}
	return err
}

// mayBeOver reports whether the lease may end by itself.
func (h *hold) mayBeOver() bool { return h.renewals >= 0 || h.maxHold > 0 }

func (c *caller) wantNotHeld(h *hold) {
	if err := h.lease.Unlock(context.Background()); !errors.Is(err, locker.ErrNotHeld) {
		c.w.violate("%v: one more Unlock: %v, want ErrNotHeld", h, err)
	}
	if h.lease.Err() == nil {
		c.w.violate("%v: unlocked, and Err is nil", h)
	}
}

// unlockTwice calls Unlock in two goroutines: one of them gives the lease back.
func (c *caller) unlockTwice(h *hold) {
	var errs [2]error
	var both sync.WaitGroup
	for i := range errs {
		both.Go(func() { errs[i] = c.unlockOnce(context.Background(), h) })
	}
	both.Wait()
	if errs[0] == nil && errs[1] == nil {
		c.w.violate("%v: two Unlocks have returned nil", h)
	}
	if errors.Is(errs[0], locker.ErrNotHeld) && errors.Is(errs[1], locker.ErrNotHeld) {
		c.w.violate("%v: both Unlocks: %v", h, errs[0])
	}
}

// letExpire leaves the key to its TTL.
func (c *caller) letExpire(h *hold) {
	err := h.lease.LetExpire()
	c.w.count(func(r *Result) { r.Operations++ })
	c.w.tell("caller %d: LetExpire of %s, token %d: %v", c.n, h.key, h.token, errText(err))
	if err != nil && !errors.Is(err, locker.ErrLost) {
		c.w.violate("%v: LetExpire: %v", h, err)
	}
	c.wantNotHeld(h)
}

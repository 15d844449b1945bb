package redlock

import (
	"context"
	"errors"
	"time"

	"github.com/distlock/locker"
	"github.com/go-redsync/redsync/v4"
)

// Renew implements [locker.Driver]: a round to all nodes for each claim.
func (d *driver) Renew(ctx context.Context, claims []locker.Claim, answer func(i int, err error)) {
	slots := make(chan struct{}, renewAtOnce)
	for i, c := range claims {
		slots <- struct{}{}
		go func() {
			defer func() { <-slots }()
			answer(i, d.renew(ctx, c))
		}()
	}
	for range renewAtOnce {
		slots <- struct{}{} // the last ones are through
	}
}

func (d *driver) renew(ctx context.Context, c locker.Claim) error {
	h := d.holdOf(c)
	o := d.newOp(ctx, opRenew, h, locker.Request{Claim: c})
	ok, err := d.mutex(c).ExtendContext(o.in(ctx))
	if ok {
		d.rejoin(h, c)
		return nil
	}
	err = lostOr(err, c)
	if errors.Is(err, locker.ErrLost) {
		// What is left on a minority would only be in the way.
		h.close()
		d.background(func(ctx context.Context) {
			for i := range d.nodes {
				d.releaseLater(h, i, c)
			}
			d.forget(c)
		})
	}
	return err
}

// rejoin takes a claim that a quorum has just confirmed to the nodes that lack it.
// Without it each restart of a node would bring the lock closer to being lost.
func (d *driver) rejoin(h *hold, c locker.Claim) {
	for i := range h.nodes {
		h.mu.Lock()
		missing := h.nodes[i].missing && !h.closing
		h.nodes[i].missing = false
		h.mu.Unlock()
		if !missing {
			continue
		}
		n := d.nodes[i]
		d.background(func(ctx context.Context) {
			ctx, cancel := context.WithTimeout(ctx, d.nodeTimeout(c.TTL))
			defer cancel()
			// As an attempt: never once the release has begun.
			h.do(ctx, i, opAcquire, func() answer {
				a := verdict(n.Run(ctx, joinScript, c, c.Token))
				n.heard(a.err)
				return a
			})
		})
	}
}

// Release implements [locker.Driver]: a round to all nodes. It returns when a
// majority has answered; nodes that do not answer are told again and again for 5 s,
// since two that missed the releases of two holders would keep everybody out.
func (d *driver) Release(ctx context.Context, c locker.Claim) error {
	h := d.holdOf(c)
	h.close()
	o := d.newOp(ctx, opRelease, h, locker.Request{Claim: c})
	ok, err := d.mutex(c).UnlockContext(o.in(ctx))
	if ok {
		d.forget(c)
		return nil
	}
	if err = lostOr(err, c); errors.Is(err, locker.ErrLost) {
		d.forget(c)
	}
	return err
}

// lostOr tells "not ours on a majority" from trouble.
func lostOr(err error, c locker.Claim) error {
	var taken *redsync.ErrTaken
	if errors.As(err, &taken) {
		return &lostError{c.ID}
	}
	if err == nil {
		err = errors.New("no quorum")
	}
	return err
}

type lostError struct{ claim string }

func (e *lostError) Error() string {
	return "claim " + e.claim + " does not hold a quorum: " + locker.ErrLost.Error()
}
func (*lostError) Unwrap() error { return locker.ErrLost }

// releaseLater releases on a node that did not answer, in the background.
func (d *driver) releaseLater(h *hold, i int, c locker.Claim) {
	d.background(func(ctx context.Context) { d.releaseOn(ctx, h, i, c) })
}

// releaseOn releases on one node, for as long as it takes, 5 s or the TTL.
func (d *driver) releaseOn(ctx context.Context, h *hold, i int, c locker.Claim) {
	ctx, cancel := context.WithTimeout(ctx, min(laterBudget, c.TTL))
	defer cancel()
	n := d.nodes[i]
	for {
		if n.usable() == nil {
			once, cancel := context.WithTimeout(ctx, d.nodeTimeout(c.TTL))
			a := h.do(once, i, opRelease, func() answer {
				if !h.nodes[i].touched {
					return answer{state: no}
				}
				a := verdict(n.Run(once, releaseScript, c))
				n.heard(a.err)
				return a
			})
			cancel()
			var refined *locker.StoreError
			if a.err == nil || errors.As(a.err, &refined) && refined.Permanent {
				return
			}
		}
		timer := time.NewTimer(laterPause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
	}
}

// Close implements [locker.Driver].
func (d *driver) Close() error {
	d.mu.Lock()
	d.closed = true
	d.mu.Unlock()
	d.stop()
	done := make(chan struct{})
	go func() {
		d.work.Wait()
		close(done)
	}()
	timer := time.NewTimer(closeBudget)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	}
	return d.closeNodes()
}

func (d *driver) closeNodes() error {
	var errs []error
	for _, n := range d.nodes {
		n.signals.Close()
		errs = append(errs, n.Driver.Close())
	}
	return errors.Join(errs...)
}

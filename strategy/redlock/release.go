package redlock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/driver"
	"github.com/distlock/locker/internal/redisdriver"
	"github.com/go-redsync/redsync/v4"
)

// Renew implements [driver.Driver]: a round to all nodes for each claim.
func (d *quorumDriver) Renew(ctx context.Context, claims []driver.Claim, answer func(i int, err error)) {
	slots := make(chan struct{}, renewAtOnce)
	var all sync.WaitGroup
	for i, c := range claims {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			answer(i, d.renew(ctx, c))
		})
	}
	all.Wait()
}

func (d *quorumDriver) renew(ctx context.Context, c driver.Claim) error {
	h := d.holds.get(c.ID)
	if h == nil {
		return errLost // or rather released
	}
	o, sent := d.newOp(ctx, opRenew, h, driver.Request{Claim: c}, 0), time.Now()
	ok, err := round(ctx, func() (bool, error) { return d.mutex(c).ExtendContext(o.in(ctx)) })
	switch {
	case ok:
		h.lasts(sent, c.TTL)
		o.confirm()
		for i := range d.nodes {
			d.rejoin(h, i, c)
		}
		return nil
	case isTaken(err):
		// The keys on a minority would only be in the way.
		h.close()
		d.holds.remove(c.ID)
		for i := range d.nodes {
			d.releaseLater(h, i, c)
		}
		return errLost
	case h.isClosing():
		return errLost // a release came in between
	}
	return o.trouble("renewed the claim", "it does not hold the key")
}

// rejoin takes a claim that a quorum has just confirmed to a node that lacks it.
// Without it each restart of a node would bring the lock closer to being lost.
func (d *quorumDriver) rejoin(h *hold, i int, c driver.Claim) {
	if !h.beginJoin(i) {
		return
	}
	n := d.nodes[i]
	d.background(func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, d.nodeTimeout(c.TTL))
		defer cancel()
		h.do(ctx, i, opJoin, func() answer {
			return n.call(ctx, func() answer {
				a := verdict(n.Run(ctx, joinScript, c, h.last(c.Token)))
				a.token = c.Token
				return a
			})
		})
	})
}

// Release implements [driver.Driver]: a round to all nodes. It returns when a
// majority is without the claim; nodes that do not answer are told again and again
// for 5 s or the TTL, since two that missed the releases of two holders would keep
// all others out.
func (d *quorumDriver) Release(ctx context.Context, c driver.Claim) error {
	h := d.holds.get(c.ID)
	if h == nil {
		// Released before, or expired long ago.
		h = newHold(len(d.nodes), 0)
		for i := range h.nodes {
			h.nodes[i].touched = true // for all we know
		}
	}
	h.close()
	inTime := !h.over(time.Now())
	o := d.newOp(ctx, opRelease, h, driver.Request{Claim: c}, 0)
	ok, err := round(ctx, func() (bool, error) { return d.mutex(c).UnlockContext(o.in(ctx)) })
	switch {
	case isTaken(err) && !(inTime && o.mayHaveHeld() >= d.quorum):
		d.holds.remove(c.ID)
		return errLost
	case ok || o.without() >= d.quorum:
		// In the second case, it was not on all nodes to begin with.
		d.holds.remove(c.ID)
		return nil
	}
	return o.trouble("released the claim", "it does not hold the key")
}

// isTaken says whether redsync's error means "not ours on a majority".
func isTaken(err error) bool {
	var taken *redsync.ErrTaken
	return errors.As(err, &taken)
}

var errLost = fmt.Errorf("the claim does not hold a majority of the nodes: %w", locker.ErrLost)

// releaseLater releases in the background on a node that may still have the key.
func (d *quorumDriver) releaseLater(h *hold, i int, c driver.Claim) {
	if h.beginLater(i) {
		d.background(func(ctx context.Context) {
			defer h.endLater(i)
			d.releaseOn(ctx, h, i, c)
		})
	}
}

// releaseOn releases on one node, for as long as it takes, 5 s or the TTL. If a
// command that sets the key was not answered it may arrive after a release that
// found nothing; so that is repeated.
func (d *quorumDriver) releaseOn(ctx context.Context, h *hold, i int, c driver.Claim) {
	ctx, cancel := context.WithTimeout(ctx, min(laterBudget, c.TTL))
	defer cancel()
	n := d.nodes[i]
	for pause := laterPause; h.left(i); pause = min(2*pause, time.Second) {
		if n.await(ctx) != nil {
			d.log.Warn("a key may be left on a node until its TTL ends", "strategy", d.Name(), "key", c.Key, "node", n.name)
			return
		}
		a := h.do(ctx, i, opRelease, func() answer {
			if err := n.usable(); err != nil { // down meanwhile
				return answer{state: failed, err: err}
			}
			once, cancel := context.WithTimeout(ctx, d.nodeTimeout(c.TTL))
			defer cancel()
			return n.call(once, func() answer { return d.releaseOnce(once, h, i, c) })
		})
		var refined *driver.StoreError
		if errors.As(a.err, &refined) && refined.Permanent || !h.left(i) {
			return
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
	}
}

func (d *quorumDriver) releaseOnce(ctx context.Context, h *hold, i int, c driver.Claim) answer {
	n := d.nodes[i]
	channel, publish := n.signals.Channel(c.Key)
	return verdict(n.Run(ctx, releaseScript, c, channel, publish, h.untold(i, c.Token)))
}

// Close implements [driver.Driver].
func (d *quorumDriver) Close() error {
	d.life.Lock()
	d.closed = true
	d.life.Unlock()
	done := make(chan struct{})
	go func() {
		d.work.Wait()
		close(done)
	}()
	redisdriver.WaitFor(done, closeSoon)
	d.stop()
	err := d.closeNodes()
	redisdriver.WaitFor(done, closeBudget)
	return err
}

func (d *quorumDriver) closeNodes() error {
	var errs []error
	for _, n := range d.nodes {
		n.signals.Close()
		errs = append(errs, n.Driver.Close())
	}
	return errors.Join(errs...)
}

package redlock

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/driver"
)

const renewAtOnce = 128 // claims renewed at the same time

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
	if d.enter() {
		defer d.leave()
	}
	h := d.holds.get(c.ID)
	if h == nil {
		return errLost // or rather released
	}
	sent := h.doubt()
	o := d.newOp(ctx, opRenew, h)
	defer o.finish()
	ok, err := o.mutex.ExtendContext(context.Background())
	switch {
	case ok:
		h.grant(sent)
		return nil
	case isTaken(err):
		// The keys on a minority would only be in the way.
		h.close()
		d.holds.remove(h)
		return errLost
	case h.isClosing():
		return errLost // a release came in between
	}
	return o.trouble("renewed the claim", "it does not hold the key")
}

// Release implements [driver.Driver]: a round to all nodes. It returns when a majority is
// without the claim; the release is sent to the others again and again.
func (d *quorumDriver) Release(ctx context.Context, c driver.Claim) error {
	if d.enter() {
		defer d.leave()
	}
	h := d.holds.get(c.ID)
	if h == nil {
		// Released before, or expired long ago.
		h = d.newHold(driver.Request{Claim: c})
		h.until = time.Time{}
		for i := range h.nodes {
			h.nodes[i].touched = true // for all we know
		}
	}
	inTime := h.close()
	o := d.newOp(ctx, opRelease, h)
	defer o.finish()
	_, err := o.mutex.UnlockContext(context.Background())
	said := o.tally()
	had := said.yes + said.expired // what expired may have done so while the release was on its way
	switch {
	case isTaken(err) && !(inTime && d.majority(had)):
		d.holds.remove(h)
		return errLost
	case d.majority(said.yes + said.no):
		d.holds.remove(h)
		return nil
	}
	return o.trouble("released the claim", "it does not hold the key")
}

var errLost = fmt.Errorf("the claim does not hold a majority of the nodes: %w", locker.ErrLost)

// Nodes implements [driver.NodeCounter].
func (d *quorumDriver) Nodes(c driver.Claim) (have, of int) {
	if h := d.holds.get(c.ID); h != nil && !h.isClosing() {
		have = h.count()
	}
	return have, len(d.nodes)
}

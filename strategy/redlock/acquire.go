package redlock

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/distlock/locker/driver"
	"github.com/distlock/locker/internal/bound"
)

// mostAttempts is how many attempts of a driver may be under way. If thousands were, the processor or the network
// could not serve them within nodeTimeout: most would fail, and their clean-ups and repetitions would
// hold up renewals and releases. Decision 0014 has the figures.
const mostAttempts = 512

// mostPauseOfSplit is the most that a contender pauses after a split vote.
const mostPauseOfSplit = 32 * time.Millisecond

// Acquire implements [driver.Driver]: one round to a majority of the nodes or to all, and
// with fencing sometimes another one. Contenders that refuse one another, each with some of
// the nodes, begin anew after a random while, so that a free key has a winner.
func (d *quorumDriver) Acquire(ctx context.Context, req driver.Request) (driver.Answer, error) {
	req.Tokens = min(req.Tokens, driver.TokensAhead)
	if d.enter() {
		defer d.leave()
	}
	waited, err := d.place(ctx, d.nodeTimeout(req.TTL))
	if err != nil {
		return driver.Answer{}, err
	}
	defer func() { <-d.attempts }()
	end, pause := time.Now().Add(d.nodeTimeout(req.TTL)/2), time.Millisecond
	if last, ok := ctx.Deadline(); ok && last.Before(end) {
		end = time.Now().Add(time.Until(last) / 2)
	}
	for n := 0; ; n++ {
		h, sent := d.newHold(req), time.Now()
		a, split, err := d.try(ctx, h, end)
		if a.Granted {
			if n > 0 || waited {
				a.Claim, a.Since = req.ID, sent
			}
			return a, nil
		}
		h.close()
		h.settle()
		// Another's commands take as long as ours; the more there are, the longer a pause it takes.
		wait := rand.N(pause + time.Since(sent)<<min(n, 3))
		if !split || d.newID == nil || time.Now().Add(wait).After(end) || !bound.Sleep(ctx, nil, wait) {
			return a, err
		}
		pause = min(2*pause, mostPauseOfSplit)
		req.Claim = d.another(req.Claim)
	}
}

var errNoPlace = &driver.StoreError{Err: fmt.Errorf("no attempt was made: %d others of this Locker were under way all the time", mostAttempts), NotApplied: true}

// place waits until fewer than mostAttempts are under way, and takes a place. It gives up while the time left is enough for an
// attempt: one that is cut short would take as much from the others as one that succeeds.
func (d *quorumDriver) place(ctx context.Context, enough time.Duration) (waited bool, err error) {
	select {
	case d.attempts <- struct{}{}:
		return false, nil
	default:
	}
	if end, ok := ctx.Deadline(); ok {
		left := time.Until(end)
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, left-min(enough, left/2))
		defer cancel()
	}
	select {
	case d.attempts <- struct{}{}:
		return true, nil
	case <-ctx.Done():
		return true, errNoPlace
	}
}

// another returns the claim of the next try: the clean-up of the one before may be late, and must
// not find the id of a grant. It has the metadata of the call.
func (d *quorumDriver) another(c driver.Claim) driver.Claim {
	named := c.Owner != c.ID
	id, _, _ := strings.Cut(d.newID(), driver.MetadataMark)
	if _, metadata, ok := strings.Cut(c.ID, driver.MetadataMark); ok {
		id += driver.MetadataMark + metadata
	}
	if c.ID = id; !named {
		c.Owner = c.ID
	}
	return c
}

func (d *quorumDriver) try(ctx context.Context, h *hold, until time.Time) (a driver.Answer, split bool, err error) {
	sent := time.Now()
	o := d.newOp(ctx, opAcquire, h)
	o.until = until
	defer o.finish()
	err = o.mutex.TryLockContext(context.Background())
	same := d.ids.twice(d.nodes)
	switch {
	case err != nil && same == nil:
		return d.refusal(o)
	case err != nil:
		return a, false, same
	case same == nil:
		a.Token, same = d.confirm(ctx, o)
	}
	if same != nil {
		_, _ = o.mutex.UnlockContext(context.Background())
		return driver.Answer{}, false, same
	}
	h.grant(sent)
	d.holds.add(h)
	return driver.Answer{Granted: true, Token: a.Token, Tokens: h.req.Tokens}, false, nil
}

// confirm makes the greatest proposal of the first round the token, which takes a
// second round to write it down unless a majority has it already. That is the rule:
// nodes that took part in the last grant of a key make the same proposal.
func (d *quorumDriver) confirm(ctx context.Context, first *op) (token int64, err error) {
	h := first.hold
	if !h.req.Fencing {
		return 0, nil
	}
	agreed := 0
	for _, a := range first.answers() {
		switch {
		case a.state != yes:
		case a.token > token:
			token, agreed = a.token, 1
		case a.token == token:
			agreed++
		}
	}
	h.token = token
	if d.majority(agreed) {
		return token, nil
	}
	second := d.newOp(ctx, opConfirm, h)
	defer second.finish()
	if ok, err := second.mutex.ExtendContext(context.Background()); !ok || err != nil {
		why := second.trouble("confirmed the token", "the claim is gone")
		why.NotApplied = true // it is undone
		return 0, why
	}
	return token, nil
}

// refusal says why the first round failed, and whether the vote was split.
func (d *quorumDriver) refusal(o *op) (a driver.Answer, split bool, err error) {
	said := o.tally()
	switch {
	case said.no == 0 || !d.majority(said.yes+said.no):
		// Not enough answers, or they came too late.
		why := o.trouble("granted the lock", "another holder has it")
		why.NotApplied = true // it is undone
		return driver.Answer{}, false, why
	case !d.majority(said.most):
		// A split vote: that there is a majority to give notice is not certain.
		return driver.Answer{NoWakeUp: true}, true, nil
	}
	var remaining []time.Duration
	for _, n := range o.answers() {
		a.NoWakeUp = a.NoWakeUp || n.noWakeUp
		if n.remaining > 0 {
			remaining = append(remaining, n.remaining)
		}
	}
	// The lock is free when enough of its keys are gone.
	slices.Sort(remaining)
	if missing := d.quorum - said.yes; missing <= len(remaining) {
		a.Remaining = remaining[missing-1]
	}
	return a, false, nil
}

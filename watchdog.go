package locker

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"time"

	"github.com/distlock/locker/driver"
)

// How the claims of a Locker are kept alive: the Scheduler says when, the driver
// renews, the claim draws the conclusions.

const (
	// A batch of renewals is given up after a third of what its most pressing
	// claim has left, to have the time for two more tries.
	minRenewTimeout = 20 * time.Millisecond
	maxRenewTimeout = 3 * time.Second
	minRenewPause   = 10 * time.Millisecond
)

// expired is told by the Scheduler that the end of claims has come. All are lost,
// and their leases told, before anything else happens.
func (e *engine) expired(cs []*claim) {
	after := make([]aftermath, len(cs))
	for i, c := range cs {
		c.mu.Lock()
		after[i] = c.expire()
		if c.state == claimHeld {
			c.schedule() // it was renewed meanwhile
		}
		c.mu.Unlock()
	}
	for _, a := range after {
		a.run()
	}
}

// renewBatch renews claims of one shard that are due.
func (e *engine) renewBatch(ctx context.Context, due []*claim) {
	sent, left := e.sched.Now(), time.Duration(maxRenewTimeout)*3
	var batch []*claim
	var claims []driver.Claim
	for _, c := range due {
		if d, ok := c.beginRenewal(sent); ok {
			left = min(left, d)
			batch, claims = append(batch, c), append(claims, c.Claim)
		}
	}
	if len(batch) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, max(left/3, minRenewTimeout))
	defer cancel()
	defer func() {
		// Deferred, to be done after a panic of the driver, too. What was answered
		// is not under way any more.
		err := errNoAnswer
		if v := recover(); v != nil {
			err = e.panicked("renewing", v)
		}
		for _, c := range batch {
			c.settleRenewal(context.Background(), sent, err, true)
		}
	}()
	e.driver.Renew(ctx, claims, func(i int, err error) {
		batch[i].settleRenewal(context.Background(), sent, err, true)
	})
}

// panicked reports a panic of the driver's, with its stack, and makes an error of it.
func (e *engine) panicked(doing string, v any) error {
	e.log.Error("the driver panicked while "+doing, "strategy", e.name, "panic", v, "stack", string(debug.Stack()))
	return fmt.Errorf("the driver panicked: %v", v)
}

// beginRenewal reports what is left of the lease, and whether it is to be renewed.
func (c *claim) beginRenewal(now time.Duration) (left time.Duration, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state != claimHeld || c.inRenewal || now >= time.Duration(c.end.Load()) {
		return 0, false
	}
	c.inRenewal = true
	return c.deadline - now, true
}

// settleRenewal draws the conclusions from the first answer to a renewal sent at
// sent. A claim that is not held any more stays so, whatever the answer.
func (c *claim) settleRenewal(ctx context.Context, sent time.Duration, err error, automatic bool) {
	c.mu.Lock()
	if c.state != claimHeld || automatic && !c.inRenewal {
		c.mu.Unlock()
		return
	}
	c.inRenewal = c.inRenewal && !automatic
	kind, now, again := EventRenewed, c.e.sched.Now(), c.outcome != nil
	after := c.expire() // a late answer revives nothing
	switch {
	case c.state == claimLost:
	case isLost(err):
		after = c.lose(lossDenied, ErrDenied)
	case err != nil:
		kind, c.outcome = EventRenewFailed, withoutContextErrors(err)
		if automatic {
			c.next = max(c.next, now+retryAfter(c.entry.Interval, c.deadline-now))
			c.schedule()
		}
	default:
		c.deadline, c.lasts, c.outcome = max(c.deadline, sent+validityOf(c.TTL)), c.TTL, nil
		if automatic {
			c.next = max(c.next, sent+c.entry.Interval)
			if c.renewals > 0 {
				c.renewals--
			}
		}
		c.schedule()
	}
	if c.state != claimLost && !c.told && c.e.notices.wanted() {
		ev := c.event(kind, c.unavailable("renew", err))
		ev.Duration, ev.again = now-sent, again && kind == EventRenewFailed
		c.e.notices.event(ctx, ev)
	}
	c.mu.Unlock()
	after.run()
}

// retryAfter is how long to wait after a failure: about three tenths of the
// interval, or half of what is left if that is less, so that another try fits
// in. Jitter keeps processes that failed together from coming back together.
func retryAfter(interval, left time.Duration) time.Duration {
	mean := min(interval/10*3, left/2)
	return max(mean/2+rand.N(max(mean, 1)), minRenewPause)
}

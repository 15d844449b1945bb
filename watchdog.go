package locker

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"sync/atomic"
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

// expired loses claims whose end has come, and notes those that are at risk, as the Scheduler
// says. All are lost, and their leases end, before anything else happens.
func (e *Client) expired(cs []*claim) {
	var after aftermath
	var unused []*claim
	for _, c := range cs {
		c.s.mu.Lock()
		if after = append(after, c.expire()...); c.state == claimHeld {
			c.noteRisk()
			if u := c.lapse(); u != nil {
				unused = append(unused, u)
			} else {
				c.schedule() // the end is still to come
			}
		}
		c.s.mu.Unlock()
	}
	after.run()
	for _, c := range unused {
		c.freeUnclaimed()
	}
}

// renewBatch renews claims of one shard whose renewals have begun.
func (e *Client) renewBatch(ctx context.Context, due []*claim) {
	sent, left := e.sched.Now(), time.Duration(maxRenewTimeout)*3
	batch, claims := make([]*claim, 0, len(due)), make([]driver.Claim, 0, len(due))
	for _, c := range due {
		if d, ok := c.awaitsRenewal(sent); ok {
			left = min(left, d)
			batch, claims = append(batch, c), append(claims, c.Claim)
		}
	}
	if len(batch) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, max(left/3, minRenewTimeout))
	defer cancel()
	answered := make([]atomic.Bool, len(batch)) // the next renewal of such a claim may be under way before this batch ends
	conclude := func(i int, err error) {
		if answered[i].CompareAndSwap(false, true) {
			batch[i].renewed(context.Background(), sent, err, true)
		}
	}
	defer func() {
		err := errNoAnswer
		if v := recover(); v != nil {
			err = e.panicked("renewing", v)
		}
		for i := range batch {
			conclude(i, err)
		}
	}()
	e.driver.Renew(ctx, claims, conclude)
}

// retryAfter returns how long to wait after a failed renewal: about three tenths of the
// interval, or half of what is left if that is less, so that another try fits in. Jitter
// keeps processes that failed together from coming back together.
func retryAfter(interval, left time.Duration) time.Duration {
	mean := min(interval/10*3, left/2)
	return max(mean/2+rand.N(max(mean, 1)), minRenewPause)
}

// panicked reports a panic of the driver's, with its stack, and makes an error of it.
func (e *Client) panicked(doing string, v any) error {
	e.log.Error("the driver panicked while "+doing, "strategy", e.name, "panic", v, "stack", string(debug.Stack()))
	return fmt.Errorf("the driver panicked: %v", v)
}

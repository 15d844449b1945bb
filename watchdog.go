package locker

import (
	"context"
	"fmt"
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

// expired loses claims whose end has come, as the Scheduler says. All are lost, and their
// leases told, before anything else happens.
func (e *Client) expired(cs []*claim) {
	var after aftermath
	for _, c := range cs {
		c.s.mu.Lock()
		if after = append(after, c.expire()...); c.state == claimHeld {
			c.schedule() // it was renewed meanwhile
		}
		c.s.mu.Unlock()
	}
	after.run()
}

// renewBatch renews claims of one shard that are due.
func (e *Client) renewBatch(ctx context.Context, due []*claim) {
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
			c.renewed(context.Background(), sent, err, true)
		}
	}()
	e.driver.Renew(ctx, claims, func(i int, err error) {
		batch[i].renewed(context.Background(), sent, err, true)
	})
}

// panicked reports a panic of the driver's, with its stack, and makes an error of it.
func (e *Client) panicked(doing string, v any) error {
	e.log.Error("the driver panicked while "+doing, "strategy", e.name, "panic", v, "stack", string(debug.Stack()))
	return fmt.Errorf("the driver panicked: %v", v)
}

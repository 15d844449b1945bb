package locker

import (
	"cmp"
	"context"
	"time"

	"github.com/distlock/locker/driver"
	"github.com/distlock/locker/internal/bound"
	"github.com/distlock/locker/internal/retry"
)

// later runs t in the background. Its Fails gets an error in any case.
func (e *Client) later(key string, t *retry.Task) {
	shard := ""
	if e.sharder != nil {
		shard = e.sharder.Shard(key)
	}
	fails := t.Fails
	t.Fails = func(err error) { fails(cmp.Or(withoutContextErrors(err), errNoAnswer)) }
	if !e.background.Add(shard, t) {
		fails(ErrClosed) // Close has not waited for it
	}
}

// retry calls f, which sends a command of a release, until the store has settled it, ctx ends
// or the budget of an Unlock is spent.
func (e *Client) retry(ctx context.Context, f func(context.Context) error) error {
	now := e.sched.Now()
	end := now + releaseBudget
	var pause retry.Backoff
	for ; ; now = e.sched.Now() {
		once := bound.New(ctx, min(releaseTimeout, end-now), nil)
		err := f(once)
		once.Stop()
		if err == nil || isSettled(err) || ctx.Err() != nil {
			return err
		}
		d := pause.Next(outagePauseMin, outagePauseMax)
		if e.sched.Now()+d >= end || !bound.Sleep(ctx, nil, d) {
			return err
		}
	}
}

// cleanUp releases, in the background, what an attempt may have been granted; sent is when it was
// sent. A command that hung in a broken connection may reach the store after its clean-up on
// another connection, so a release that finds nothing is repeated once, after a second; not if
// granted says that the attempt was granted. The release names the claim, whose id is used by no
// other attempt: it frees no later grant. It is given up when the TTL has freed the key in any
// case, and when Close does not wait any longer.
func (e *Client) cleanUp(cl driver.Claim, sent time.Duration, granted bool) {
	e.later(cl.Key, &retry.Task{
		ID:    "clean up " + cl.ID,
		Until: sent + cl.TTL + commandTimeout,
		Run: func(ctx context.Context) error {
			err := e.driver.Release(ctx, cl)
			if isLost(err) && !granted {
				granted = true // once is enough
				return retry.ErrRepeat
			}
			if isLost(err) {
				return nil
			}
			return err
		},
		Fails: func(err error) {
			e.log.Warn("clean-up after an attempt without an answer failed; the TTL frees the key", "strategy", e.name, "key", cl.Key, "err", err)
		},
	})
}

// freeLater goes on with a release whose Unlock has returned without an answer, or that nobody
// waits for. It calls tried after each try, and at the end.
func (e *Client) freeLater(ctx context.Context, c *claim, tried func()) {
	end := func(err error) {
		kind, outcome := c.releaseEnd(err)
		c.s.mu.Lock()
		silent := c.reported && kind == EventReleaseFailed // its end was reported before this
		c.released(ctx, kind, outcome)
		c.s.mu.Unlock()
		if silent {
			e.log.Warn("release failed in the background; the TTL frees the key", "strategy", e.name, "key", c.Key, "err", outcome)
		}
		tried()
	}
	c.s.mu.Lock()
	until := max(c.keptUntil()+c.TTL/100, e.sched.Now()) + time.Second
	c.s.mu.Unlock()
	e.later(c.Key, &retry.Task{
		ID:    "free " + c.ID,
		Until: until,
		Run: func(rctx context.Context) error {
			defer tried()
			err := c.free(rctx)
			if !isSettled(err) {
				return err
			}
			end(err)
			return nil
		},
		Fails: end,
	})
}

// correctHolds corrects the hold count of a claim, which an unanswered command may have
// changed.
func (e *Client) correctHolds(c *claim) {
	e.later(c.Key, &retry.Task{
		ID:    "count " + c.ID,
		Until: e.sched.Now() + max(c.TTL, minOutage),
		Run: func(ctx context.Context) error {
			if err := c.syncHolds(ctx); !isSettled(err) {
				return err
			}
			return nil
		},
		Fails: func(error) {}, // the next count that is sent is right again
	})
}

// lengthen gives a claim that LetExpire has left, and that was granted for less than its TTL, the full TTL. The
// renewal names the claim: whenever it arrives, and how often, it changes no later grant.
func (e *Client) lengthen(c *claim) {
	e.later(c.Key, &retry.Task{
		ID:    "lengthen " + c.ID,
		Until: c.deadline, // nothing changes it any more
		Run: func(ctx context.Context) error {
			err := errNoAnswer
			e.driver.Renew(ctx, []driver.Claim{c.Claim}, func(_ int, answer error) { err = answer })
			if isLost(err) {
				return nil
			}
			return err
		},
		Fails: func(err error) {
			e.log.Warn("a lock that LetExpire has left may be free before its TTL is over", "strategy", e.name, "key", c.Key, "err", err)
		},
	})
}

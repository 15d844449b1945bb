package locker

import (
	"context"
	"errors"
	"time"
)

type leaseState uint8

const (
	leaseHeld leaseState = iota
	leaseLost
	leaseUnlocked // Unlock was called; its release may be under way or have failed
	leaseDone     // Unlock returned nil or ErrLost
)

// releaseOp is a release under way. err is set before done is closed.
type releaseOp struct {
	done chan struct{}
	err  error
}

// over reports whether the lease has ended, and why: the loss, or Canceled after
// Unlock.
func (l *Lease) over() (cause error, over bool) {
	l.claim.mu.Lock()
	defer l.claim.mu.Unlock()
	switch l.state {
	case leaseHeld:
		return nil, false
	case leaseLost:
		return l.claim.loss, true
	}
	return context.Canceled, true
}

// answers reports whether a Lock that asks with q re-enters l. A lost lease
// does: it makes that Lock fail instead of quietly taking the lock anew under a
// section that is no longer protected.
func (l *Lease) answers(q carried) bool {
	if q.e != l.e || q.key != l.claim.Key || q.named && q.owner != l.claim.Owner {
		return false
	}
	l.claim.mu.Lock()
	defer l.claim.mu.Unlock()
	return l.state == leaseHeld || l.state == leaseLost
}

func (l *Lease) lostChan() <-chan struct{} {
	l.claim.checkClock()
	l.claim.mu.Lock()
	defer l.claim.mu.Unlock()
	if l.lost == nil {
		l.lost = make(chan struct{})
		if l.state == leaseLost {
			close(l.lost)
		}
	}
	return l.lost
}

func (l *Lease) fail(op string, kind, why error, hint string) error {
	return &opError{strategy: l.e.name, op: op, key: l.claim.userKey, kind: kind, why: why, hint: hint}
}

func (l *Lease) notHeld(op string) error {
	return l.fail(op, ErrNotHeld, nil, "this lease was unlocked before")
}

func (l *Lease) renew(ctx context.Context) error {
	if ctx == nil {
		return invalid("Renew needs a context")
	}
	c := l.claim
	c.checkClock()
	switch cause, over := l.over(); {
	case over && errors.Is(cause, ErrLost):
		return cause
	case over:
		return l.notHeld("renew")
	}
	if err := ctx.Err(); err != nil {
		return l.fail("renew", ErrUnavailable, err, "")
	}

	var sent time.Time
	err, left := detached(ctx, l.e, commandTimeout, func(ctx context.Context) error {
		err := errors.New("the driver gave no answer")
		sent = time.Now()
		l.e.driver.Renew(ctx, []Claim{c.Claim}, func(_ int, e error) { err = e })
		// Applied here, so that it counts even when the caller has gone.
		switch {
		case err == nil:
			if !l.e.sched.Extend(&c.watched, sent) {
				c.checkClock()
				if loss := c.lossOf(); loss != nil {
					return loss
				}
				return l.notHeld("renew")
			}
		case errors.Is(err, ErrLost):
			l.e.sched.Fail(&c.watched, errDenied)
			if c.lose(errDenied); c.lossOf() != nil {
				return c.lossOf()
			}
			return l.notHeld("renew") // unlocked meanwhile
		}
		return err
	}, nil)
	switch {
	case left:
		return l.fail("renew", ErrUnavailable, ctx.Err(), "no answer came in time")
	case err == nil || errors.Is(err, ErrLost) || errors.Is(err, ErrNotHeld):
		return err
	}
	return l.fail("renew", ErrUnavailable, err, "the lease stays as it was")
}

func (l *Lease) unlock(ctx context.Context) error {
	if ctx == nil {
		return invalid("Unlock needs a context; it need not be alive")
	}
	c := l.claim
	c.checkClock()

	c.mu.Lock()
	if l.state == leaseDone || l.inUnlock {
		c.mu.Unlock()
		return l.notHeld("unlock")
	}
	var ctxs leaseContexts
	if l.state != leaseUnlocked {
		// The section is over before the release is sent.
		if l.state == leaseHeld {
			l.state = leaseUnlocked
			ctxs, l.ctxs = l.ctxs, nil
		}
		c.dropLease(l)
	}
	last := len(c.leases) == 0
	if last && c.state == claimHeld {
		// From here on nobody re-enters, and renewal is disarmed before the
		// release is sent. (One in flight is harmless: the store checks the
		// claim id.)
		c.state = claimReleasing
		l.e.sched.Stop(&c.watched)
	}
	state, kind, loss := c.state, c.lossKind, c.loss
	if l.release == nil {
		switch {
		// Nothing to tell the store?
		case state == claimLost && (!last || kind == lossDenied):
			l.state = leaseDone
			c.mu.Unlock()
			if last {
				l.e.forgetOrphan(c)
			}
			if kind == lossClosed {
				return nil // the last Unlock still frees the key
			}
			return loss
		case state == claimHeld && !last && l.e.counter == nil:
			l.state = leaseDone
			c.mu.Unlock()
			ctxs.end(context.Canceled)
			return nil
		}
	}
	op, started := l.release, false
	if op == nil {
		op, started = &releaseOp{done: make(chan struct{})}, true
		l.release = op
	}
	l.inUnlock = true
	gone := state == claimLost && kind == lossExpired
	c.mu.Unlock()
	ctxs.end(context.Canceled)
	if last && state == claimLost {
		l.e.forgetOrphan(c)
	}

	if started {
		if ctx.Done() != nil && ctx.Err() == nil || gone {
			go l.runRelease(context.WithoutCancel(ctx), op)
		} else {
			l.runRelease(context.WithoutCancel(ctx), op)
		}
	}
	return l.await(ctx, op, gone, loss)
}

// await waits for op and makes the answer of Unlock of it. gone: the lease had
// expired, so that op is only a courtesy nobody needs to wait for.
func (l *Lease) await(ctx context.Context, op *releaseOp, gone bool, loss error) error {
	c := l.claim
	finished := true
	if gone {
		select {
		case <-op.done:
		default:
			finished = false
		}
	} else {
		end := ctx.Done()
		if ctx.Err() != nil {
			end = nil // a dead context from the start: op takes up to 5 s
		}
		select {
		case <-op.done:
		case <-end:
			finished = false
		}
	}

	c.mu.Lock()
	defer c.mu.Unlock()
	l.inUnlock = false
	switch {
	case gone:
		l.state = leaseDone
		return loss
	case !finished:
		return l.fail("unlock", ErrUnavailable, ctx.Err(), "the release goes on in the background; the TTL frees the key in any case")
	case op.err == nil || errors.Is(op.err, ErrLost):
		l.state = leaseDone
		return op.err
	}
	l.release = nil // may be tried again
	return l.fail("unlock", ErrUnavailable, op.err, "Unlock may be called again; the TTL frees the key in any case")
}

func (l *Lease) runRelease(ctx context.Context, op *releaseOp) {
	c, e := l.claim, l.e
	e.work.beginAlways()
	defer e.work.end()
	ctx, cancel := context.WithTimeout(ctx, releaseBudget)
	defer cancel()
	op.err = c.giveBack(ctx)

	c.mu.Lock()
	last, state := len(c.leases) == 0, c.state
	c.mu.Unlock()
	if last {
		held := time.Since(c.granted)
		switch {
		case state == claimLost: // EventLost told it
		case op.err == nil:
			e.log.Debug("lock released", "strategy", e.name, "key", c.userKey, "owner", c.Owner, "token", c.Token)
			e.events.now(c.event(EventReleased, held, nil))
		case errors.Is(op.err, ErrLost):
			e.log.Warn("lock was lost before it was released", "strategy", e.name, "key", c.userKey, "owner", c.Owner, "token", c.Token)
			e.events.now(c.event(EventLost, held, op.err))
		default:
			e.log.Warn("release failed; the TTL frees the key", "strategy", e.name, "key", c.userKey, "owner", c.Owner, "token", c.Token, "err", op.err)
			e.events.now(c.event(EventReleaseFailed, held, op.err))
		}
	}
	close(op.done)
}

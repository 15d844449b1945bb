package locker

import (
	"context"
	"errors"
	"log/slog"
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

// failed reports whether op is over without having settled anything.
func (op *releaseOp) failed() bool {
	select {
	case <-op.done:
		return op.err != nil && !errors.Is(op.err, ErrLost)
	default:
		return false
	}
}

// over tells why the lease has ended, if it has: the loss, or Canceled after
// Unlock.
func (l *Lease) over() error {
	l.claim.mu.Lock()
	defer l.claim.mu.Unlock()
	switch l.state {
	case leaseHeld:
		return nil
	case leaseLost:
		return l.claim.loss
	}
	return context.Canceled
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
	switch cause := l.over(); {
	case errors.Is(cause, ErrLost):
		return cause
	case cause != nil:
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
			if c.denied(); c.lossOf() != nil {
				return c.lossOf()
			}
			return l.notHeld("renew") // unlocked meanwhile
		}
		return err
	}, nil)
	switch {
	case (left || err != nil) && c.checkClock():
		return c.lossOf() // it ended meanwhile
	case left:
		why := errNoAnswer
		if err := ctx.Err(); err != nil {
			why = err
		}
		return l.fail("renew", ErrUnavailable, why, "the lease stays as it was unless the answer was lost")
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
	live := ctx.Done() != nil && ctx.Err() == nil

	c.mu.Lock()
	if c.state == claimHeld && len(c.leases) == 1 && c.leases[0] == l && !l.e.sched.Stop(&c.watched) {
		// Lost, or the Locker closed, since the look at the clock.
		c.mu.Unlock()
		cause := l.e.sched.Cause(&c.watched)
		if cause == nil {
			cause = ErrClosed
		}
		c.lose(cause)
		c.mu.Lock()
	}
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
		if c.dropLease(l) {
			l.last = len(c.leases) == 0
		}
	}
	last := l.last
	if last && c.state == claimHeld {
		// From here on nobody re-enters. Renewal was disarmed above, before
		// the release is sent. (One in flight is harmless: the store checks
		// the claim id.)
		c.state = claimReleasing
	}
	state, kind, loss := c.state, c.lossKind, c.loss
	if l.release == nil || l.release.failed() {
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
	if op == nil || op.failed() {
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
		if live || gone {
			l.e.work.beginAlways() // here, so that Close does not miss it
			go func() {
				defer l.e.work.end()
				l.runRelease(context.WithoutCancel(ctx), op)
			}()
		} else {
			l.runRelease(context.WithoutCancel(ctx), op)
		}
	}
	var end <-chan struct{} // nil if ctx was dead from the start: the release may take its 5 s
	if live {
		end = ctx.Done()
	}
	if gone {
		return l.finish(nil, nil, loss)
	}
	select {
	case <-op.done:
		return l.finish(op, nil, nil)
	case <-end:
		return l.finish(nil, ctx.Err(), nil)
	}
}

// finish makes the answer of Unlock: that of op, which is done, unless left says
// why it was not waited for, or gone, that the lease had expired and op is only a
// courtesy.
func (l *Lease) finish(op *releaseOp, left, gone error) error {
	l.claim.mu.Lock()
	defer l.claim.mu.Unlock()
	l.inUnlock = false
	switch {
	case gone != nil:
		l.state = leaseDone
		return gone
	case left != nil:
		return l.fail("unlock", ErrUnavailable, left, "the release goes on in the background; the TTL frees the key in any case")
	case op.err == nil || errors.Is(op.err, ErrLost):
		l.state = leaseDone
		return op.err
	}
	return l.fail("unlock", ErrUnavailable, op.err, "Unlock may be called again; the TTL frees the key in any case")
}

func (l *Lease) runRelease(ctx context.Context, op *releaseOp) {
	c, e := l.claim, l.e
	ctx, cancel := context.WithTimeout(ctx, releaseBudget)
	defer cancel()
	defer close(op.done)
	op.err = c.giveBack(ctx, l.last)
	if !l.last {
		return
	}
	// Whatever came of it, the next in the queue need not wait for it.
	e.detach(c)
	c.mu.Lock()
	lost := c.state == claimLost
	c.mu.Unlock()
	held := time.Since(c.granted)
	switch {
	case lost: // EventLost told it
	case op.err == nil:
		e.log.Debug("lock released", c.logged())
		e.events.now(c.event(EventReleased, held, nil))
	case errors.Is(op.err, ErrLost):
		e.log.Warn("lock was lost before it was released", c.logged())
		e.events.now(c.event(EventLost, held, op.err))
	default:
		e.log.Warn("release failed; the TTL frees the key", c.logged(), slog.Any("err", op.err))
		e.events.now(c.event(EventReleaseFailed, held, op.err))
	}
}

package locker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/distlock/locker/renewal"
)

// call is one Lock or TryLock.
type call struct {
	e *engine
	callSettings
	ctx     context.Context // ends with the caller's, or when WithWait is over
	caller  context.Context
	op      string
	key     string // as in the store
	userKey string
	owner   string // "" unless named
	began   time.Time
	fresh   bool // granted, not re-entered
}

// start checks the arguments, and re-enters or acquires.
func (e *engine) start(ctx context.Context, key string, try bool, opts []LockOption) (lease *Lease, err error) {
	if ctx == nil {
		return nil, invalid("Lock needs a context")
	}
	c := call{e: e, callSettings: e.set.call, ctx: ctx, caller: ctx, op: "lock", userKey: key, began: time.Now()}
	if try {
		c.op = "try to lock"
	}
	for _, o := range opts {
		if o == nil {
			return nil, invalid("an option is nil")
		}
		o.applyCall(&c.callSettings)
	}
	if c.err != nil {
		return nil, c.err
	}
	if err := checkKey(key); err != nil {
		return nil, err
	}
	if err := e.checkInterval(&c.callSettings); err != nil {
		return nil, err
	}
	owner, named, err := explicitOwner(ctx)
	if err != nil {
		return nil, err
	}
	c.owner = owner
	c.key = e.set.prefix + key
	// The store counts whole milliseconds; more than promised does no harm.
	c.ttl = (c.ttl + time.Millisecond - 1).Truncate(time.Millisecond)

	if !e.work.begin() {
		return nil, c.report(nil, c.fail(ErrClosed, nil, ""))
	}
	defer e.work.end()

	if !try && c.wait > 0 {
		var cancel context.CancelFunc
		c.ctx, cancel = context.WithTimeout(ctx, c.wait)
		defer cancel()
	}
	outer, _ := ctx.Value(carried{e: e, key: c.key}).(*Lease)
	if outer != nil && outer.claim.checkClock() {
		return nil, c.report(nil, c.lost(outer.claim))
	}
	if ctx.Err() != nil {
		return nil, c.report(nil, c.fail(ErrNotAcquired, c.ctxError(), ""))
	}
	if outer != nil {
		lease, err = c.reenter(outer.claim, try)
		if !errors.Is(err, errGone) {
			return lease, c.report(lease, err)
		}
	}
	if try {
		lease, err = c.tryOnce(named)
	} else {
		lease, err = c.queue(named)
	}
	return lease, c.report(lease, err)
}

// report tells the observer how the call ended.
func (c *call) report(l *Lease, err error) error {
	e, took := c.e, time.Since(c.began)
	switch {
	case err != nil:
		if e.set.observer != nil {
			e.events.now(Event{Kind: EventNotAcquired, Strategy: e.name, Key: c.userKey, Owner: c.owner, Duration: took, Err: err})
		}
	case c.fresh:
		e.log.Debug("lock acquired", l.claim.logged(), slog.Duration("wait", took))
		e.events.now(l.claim.event(EventAcquired, took, nil))
	}
	return err
}

func (c *call) fail(kind, why error, hint string) error {
	return &opError{strategy: c.e.name, op: c.op, key: c.userKey, kind: kind, why: why, hint: hint}
}

// ctxError is why the caller's context ended; nil if it has not.
func (c *call) ctxError() error {
	err := c.caller.Err()
	if cause := context.Cause(c.caller); err != nil && !errors.Is(err, cause) {
		return fmt.Errorf("%w: %w", err, cause)
	}
	return err
}

// unavailable makes the error of a call that failed for want of the store.
func (c *call) unavailable(why error, hint string) error {
	for _, kind := range []error{ErrConflict, ErrInvalid, ErrClosed} {
		if errors.Is(why, kind) {
			return c.fail(kind, why, hint)
		}
	}
	if err := c.ctxError(); err != nil && !errors.Is(why, err) {
		why = fmt.Errorf("%w; last failure: %w", err, why)
	}
	return c.fail(ErrUnavailable, why, hint)
}

// reenter adds a lease to claim cl, or fails with errGone if it was given back.
func (c *call) reenter(cl *claim, try bool) (*Lease, error) {
	l, err := cl.reenter(c.ctx, try)
	switch {
	case err == nil || errors.Is(err, errGone):
		return l, err
	case errors.Is(err, ErrLost):
		return nil, c.lost(cl)
	}
	return nil, c.unavailable(err, "while re-entering")
}

// lost is the error of a call that would re-enter what its owner has lost.
func (c *call) lost(cl *claim) error {
	return c.fail(ErrLost, cl.lossOf(), "unlock the lost leases of this owner before locking anew")
}

// tryOnce is TryLock.
func (c *call) tryOnce(named bool) (*Lease, error) {
	e := c.e
	l, err := c.local(named)
	if l != nil || err != nil {
		return l, err
	}
	claim := e.newClaim(c.key, c.owner, c.ttl)
	a := c.attempt(claim, false)
	switch {
	case a.left && e.isClosed():
		return nil, c.fail(ErrClosed, nil, "")
	case a.left:
		return nil, c.unavailable(errNoAnswer, "")
	case a.err != nil:
		return nil, c.unavailable(a.err, "")
	case a.Granted:
		l, err = c.grant(claim, a, named, nil)
		if !errors.Is(err, errMerge) {
			return l, err
		}
	}
	// The holder may be a goroutine with the same owner.
	if l, err = c.local(named); l != nil || err != nil {
		return l, err
	}
	return nil, c.fail(ErrNotAcquired, errTaken, "")
}

var (
	errTaken    = errors.New("somebody else holds the key")
	errLocal    = errors.New("somebody else in this process holds the key or waits for it")
	errLate     = errors.New("the grant arrived after its lease had ended")
	errNoAnswer = errors.New("no answer came in time")
	errMerge    = errors.New("another goroutine of the same owner was granted the key")
)

// local answers TryLock without the store, if it can.
func (c *call) local(named bool) (*Lease, error) {
	e := c.e
	sh := e.shardOf(c.key)
	sh.mu.Lock()
	ks := sh.keys[c.key]
	if ks == nil {
		sh.mu.Unlock()
		return nil, nil
	}
	current, queue := ks.current, ks.head != nil
	var orphan *claim
	if named {
		orphan = ks.orphanOf(c.owner)
	}
	sh.mu.Unlock()

	if current != nil && current.checkClock() {
		if named && current.Owner == c.owner {
			return nil, c.lost(current)
		}
		current = nil // off the table, or about to be
	}
	switch {
	case orphan != nil:
		return nil, c.lost(orphan)
	case current != nil && named && current.Owner == c.owner:
		l, err := c.reenter(current, true)
		if !errors.Is(err, errGone) {
			return l, err
		}
		return nil, c.fail(ErrNotAcquired, errLocal, "")
	case current != nil || queue && !(named && e.counter != nil):
		// (A named owner may hold from another process, and re-enter here.)
		return nil, c.fail(ErrNotAcquired, errLocal, "")
	}
	return nil, nil
}

// attempt is one Acquire and how it ended.
type attempt struct {
	Answer
	err  error
	sent time.Time
	left bool // the caller's context ended first; what comes is cleaned up
}

func (c *call) attempt(cl Claim, wait bool) attempt {
	e := c.e
	clean := func(a attempt) {
		if a.err == nil && a.Granted || a.err != nil && maybeApplied(a.err) {
			e.cleanUp(cl, a.err == nil)
		}
	}
	a, left := detached(c.ctx, e, min(commandTimeout, c.ttl), func(ctx context.Context) attempt {
		a := attempt{sent: time.Now()}
		a.Answer, a.err = e.driver.Acquire(ctx, Request{Claim: cl, Fencing: !e.set.noFencing, Wait: wait})
		return a
	}, clean)
	if left {
		return attempt{left: true}
	}
	if a.err != nil && maybeApplied(a.err) {
		e.work.beginAlways()
		go func() {
			defer e.work.end()
			e.cleanUp(cl, false)
		}()
	}
	return a
}

// grant makes a lease of a granted attempt, taking w off the queue. It fails
// with errLate, errMerge or the Locker's end, having cleaned up.
func (c *call) grant(cl Claim, a attempt, named bool, w *waiter) (*Lease, error) {
	e := c.e
	undo := func() {
		e.work.beginAlways()
		go func() {
			defer e.work.end()
			e.cleanUp(cl, true)
		}()
	}
	now := time.Now()
	validity := validityOf(c.ttl)
	deadline := a.sent.Add(validity)
	if !now.Before(deadline) {
		undo()
		return nil, c.unavailable(errLate, "")
	}

	cl.Token = a.Token
	claim := &claim{Claim: cl, e: e, userKey: c.userKey, named: named, granted: now}
	if e.counter != nil {
		claim.op = make(chan struct{}, 1)
	}
	l := &Lease{e: e, claim: claim}
	claim.leases = []*Lease{l}
	terms := renewal.Terms{Validity: validity, Deadline: deadline, MaxRenewals: c.maxRenewals}
	if e.sharder != nil {
		terms.Shard = e.sharder.Shard(cl.Key)
	}
	if !c.noRenewal {
		if terms.Interval = e.set.renewInterval; terms.Interval == 0 {
			terms.Interval = c.ttl / 3
		}
	}
	if c.maxHold > 0 {
		terms.Limit = now.Add(c.maxHold)
	}
	// Armed before anybody can unlock it.
	e.sched.Add(&claim.watched, claim, terms)
	select {
	case <-e.closed:
		e.sched.Stop(&claim.watched)
		undo()
		return nil, c.fail(ErrClosed, nil, "")
	default:
	}
	if err := e.install(claim, w); err != nil {
		e.sched.Stop(&claim.watched)
		undo()
		if errors.Is(err, errLate) {
			err = c.unavailable(err, "")
		}
		return nil, err
	}
	c.fresh = true
	return l, nil
}

package locker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/distlock/locker/driver"
)

// call is one Lock or TryLock.
type call struct {
	e *engine
	s *shard
	callSettings
	place
	ctx     context.Context // ends with the caller's, or when WithWait is over
	caller  context.Context
	op      string
	key     string // as in the store
	userKey string
	owner   string // "" unless named
	named   bool
	began   time.Duration
	waiting bool               // EventWaiting was told
	cancel  context.CancelFunc // of the command under way; guarded by s.mu
	poll    backoff
	outage  backoff
}

// start checks the arguments, and re-enters or acquires.
func (e *engine) start(ctx context.Context, key string, try bool, opts []LockOption) (*Lease, error) {
	if ctx == nil {
		return nil, invalid("Lock needs a context")
	}
	set, err := e.set.forCall(opts)
	if err != nil {
		return nil, err
	}
	if err := checkKey(key); err != nil {
		return nil, err
	}
	owner, named, err := explicitOwner(ctx)
	if err != nil {
		return nil, err
	}
	c := &call{e: e, callSettings: set, ctx: ctx, caller: ctx, op: "lock", key: e.set.prefix + key, userKey: key,
		owner: owner, named: named, began: e.sched.Now()}
	if try {
		c.op = "try to lock"
	}
	c.s = e.shardOf(c.key)
	if !c.s.enter(false) {
		return nil, c.report(c.fail(ErrClosed, nil, ""))
	}
	defer c.s.exit()
	if !try && c.wait > 0 {
		var cancel context.CancelFunc
		c.ctx, cancel = context.WithTimeout(ctx, c.wait)
		defer cancel()
	}
	lease, err := c.run(try || c.wait == 0)
	return lease, c.report(err)
}

func (c *call) run(try bool) (*Lease, error) {
	outer := c.outer()
	if outer != nil && !outer.claim.alive() {
		return nil, c.lost(outer.claim)
	}
	if c.ctx.Err() != nil {
		return nil, c.fail(ErrNotAcquired, c.ctxError(), "")
	}
	if outer != nil {
		if l, err := c.reenter(outer.claim, try); !errors.Is(err, errGone) {
			return l, err
		}
	}
	if try {
		return c.tryLock()
	}
	return c.lock()
}

// outer is the lease carried by the caller's context that this call re-enters.
func (c *call) outer() *Lease {
	if _, ok := LeaseFromContext(c.caller); !ok {
		return nil
	}
	l, _ := c.caller.Value(carried{e: c.e, key: c.key}).(*Lease)
	return l
}

// tryLock is TryLock: one attempt, none if this process can answer by itself.
func (c *call) tryLock() (*Lease, error) {
	if l, err := c.local(); l != nil || err != nil {
		return l, err
	}
	cl := c.newClaim()
	a, sent, err := c.acquire(cl, false)
	switch {
	case err != nil:
		return nil, c.unavailable(err, "")
	case a.Granted:
		switch l, err := c.grant(cl, a, sent); {
		case err == nil:
			return l, nil
		case !errors.Is(err, errMerge):
			return nil, c.unavailable(err, "")
		}
	}
	// The holder may be a goroutine with the same owner.
	if l, err := c.local(); l != nil || err != nil {
		return l, err
	}
	return nil, c.fail(ErrNotAcquired, errTaken, "")
}

// local answers TryLock without the store, if it can.
func (c *call) local() (*Lease, error) {
	c.s.mu.Lock()
	ks := c.s.keys[c.key]
	if ks == nil {
		c.s.mu.Unlock()
		return nil, nil
	}
	current, queue, late := ks.current, ks.head != nil, !ks.blocked(c.e.sched.Now())
	lost := ks.lostOf(c.owner)
	c.s.mu.Unlock()

	mine := current != nil && c.named && current.Owner == c.owner
	switch {
	case current == nil:
	case !current.alive():
		if mine {
			return nil, c.lost(current)
		}
		current = nil // off the table, or about to be
	case current.releasing() && late:
		current = nil // the store decides
	}
	switch {
	case c.named && lost != nil:
		return nil, c.lost(lost)
	case current != nil && mine:
		l, err := c.reenter(current, true)
		if !errors.Is(err, errGone) {
			return l, err
		}
		return nil, c.fail(ErrNotAcquired, errLocal, "")
	case current != nil || queue && !(c.named && c.e.counter != nil):
		// (A named owner may hold from another process, and re-enter here.)
		return nil, c.fail(ErrNotAcquired, errLocal, "")
	}
	return nil, nil
}

// lock is Lock: first come, first served. The call joins the queue of its key and
// does what its turn there says, until it has a lease or an end.
func (c *call) lock() (*Lease, error) {
	ks := c.join()
	defer c.leave(ks)
	signalled := false
	for {
		t := c.turn(ks, signalled)
		signalled = false
		switch {
		case t.err != nil:
			return nil, t.err
		case t.mine != nil:
			if l, err := c.reenter(t.mine, false); !errors.Is(err, errGone) {
				return l, err
			}
		case t.attempt:
			if l, err := c.attempt(ks, t.watch); l != nil || err != nil {
				return l, err
			}
		default:
			var err error
			if signalled, err = c.park(ks, t); err != nil {
				return nil, err
			}
		}
	}
}

// turn is what a waiting call is to do.
type turn struct {
	err     error         // fail
	mine    *claim        // re-enter it
	attempt bool          // ask the store
	watch   driver.Watch  // the key's, if any
	look    time.Duration // else wait until then
}

func (c *call) turn(ks *keyState, signalled bool) turn {
	c.s.mu.Lock()
	if cur := ks.current; cur != nil {
		// The clock is looked at outside the lock; a loss takes it.
		c.s.mu.Unlock()
		cur.alive()
		c.s.mu.Lock()
	}
	defer c.s.mu.Unlock()
	now, cur := c.e.sched.Now(), ks.current
	switch {
	case c.e.isClosed():
		return turn{err: c.fail(ErrClosed, nil, "")}
	case c.failed != nil:
		return turn{err: c.unavailable(c.failed, "")}
	}
	if c.named {
		if lost := ks.lostOf(c.owner); lost != nil {
			return turn{err: c.lost(lost)}
		}
		if cur != nil && cur.Owner == c.owner && cur.isHeld() {
			return turn{mine: cur}
		}
	}
	// A waiter whose owner holds the key from another process joins that hold; in
	// turn it would wait for itself.
	joins := cur == nil && c.named && c.e.counter != nil && c.owner == ks.holder
	asks := joins || ks.next() == c && !ks.blocked(now)
	signalled, c.woken = signalled || c.woken, false
	switch {
	case asks && (signalled || now >= c.look):
		c.asking = true
		c.s.begin(ks, now)
		return turn{attempt: true, watch: ks.watch}
	case asks:
		return c.waits(ks, turn{watch: ks.watch, look: c.look})
	}
	c.s.guardTurn(ks, now)
	return c.waits(ks, turn{look: never})
}

// waits readies the call for park; it needs s.mu.
func (c *call) waits(ks *keyState, t turn) turn {
	if c.wake == nil {
		c.wake = make(chan struct{}, 1)
	}
	select {
	case <-c.wake: // from before
	default:
	}
	if !c.waiting && ks.outage.since == 0 {
		c.waiting = true
		c.e.notices.event(c.ctx, c.event(EventWaiting, 0, nil))
	}
	return t
}

// park waits for a signal, a change in the queue or the time to look. It fails when
// the caller does not want to wait any more.
func (c *call) park(ks *keyState, t turn) (signalled bool, err error) {
	var signal <-chan struct{}
	if t.watch != nil {
		signal = t.watch.C()
	}
	var look <-chan time.Time
	if t.look != never {
		timer := time.NewTimer(t.look - c.e.sched.Now())
		defer timer.Stop()
		look = timer.C
	}
	select {
	case <-c.wake:
	case _, ok := <-signal:
		if !ok {
			c.unwatch(ks, t.watch)
		}
		return true, nil
	case <-look:
	case <-c.e.closed:
		return false, c.fail(ErrClosed, nil, "")
	case <-c.ctx.Done():
		return false, c.gaveUp(ks, never)
	}
	return false, nil
}

// report tells the observer how the call failed, if it did.
func (c *call) report(err error) error {
	if err != nil && c.e.notices.wanted() {
		c.e.notices.event(c.caller, c.event(EventNotAcquired, 0, err))
	}
	return err
}

func (c *call) event(kind EventKind, token int64, err error) Event {
	return Event{Kind: kind, Strategy: c.e.name, Key: c.userKey, Owner: c.owner, Token: token,
		Duration: c.e.sched.Now() - c.began, Err: err}
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
	why = withoutContextErrorsBut(c.caller, why)
	if err := c.ctxError(); err != nil && !errors.Is(why, err) {
		why = fmt.Errorf("%w; last failure: %w", err, why)
	}
	return c.fail(ErrUnavailable, why, hint)
}

// lost is the error of a call that would re-enter what its owner has lost.
func (c *call) lost(cl *claim) error {
	return c.fail(ErrLost, cl.lossOf(), "unlock the lost leases of this owner before locking anew")
}

// ended reports whether the call's context has ended. A command's connection may
// notice the deadline a moment before the context does.
func (c *call) ended() bool {
	if d, ok := c.ctx.Deadline(); ok && !time.Now().Before(d) {
		<-c.ctx.Done()
	}
	return c.ctx.Err() != nil
}

// gaveUp is the error of a wait that the caller ended; sent is when the attempt was
// sent that this ended, never if there was none.
func (c *call) gaveUp(ks *keyState, sent time.Duration) error {
	c.s.mu.Lock()
	outage, now := ks.outage, c.e.sched.Now()
	if ks.underWay > 0 {
		sent = min(sent, ks.oldest)
	}
	if outage.since == 0 && sent != never {
		// An attempt is unanswered: trouble, unless it is just that the wait
		// was over a moment after it was sent. A store that has answered
		// before gets the benefit of the doubt for longer.
		patience := answerSoon
		if ks.answered {
			patience = answerLate
		}
		if now-sent > patience {
			outage.failed(sent, errNoAnswer)
			ks.outage = outage // the others in the queue need not find out for themselves
		}
	}
	c.s.mu.Unlock()
	if outage.since != 0 {
		return c.unavailable(outage.err, "")
	}
	why := c.ctxError()
	if why == nil {
		why = fmt.Errorf("not within %v", c.wait)
	}
	return c.fail(ErrNotAcquired, why, "")
}

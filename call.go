package locker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/distlock/locker/driver"
	"github.com/distlock/locker/internal/bound"
	"github.com/distlock/locker/internal/retry"
)

// call is one Lock or TryLock.
type call struct {
	e *Client
	s *stripe
	callSettings
	waiter
	ctx        context.Context // ends with the caller's, or when WithWait is over
	caller     context.Context
	op         string
	key        string // as in the store
	began      time.Duration
	pollPause  retry.Backoff
	retryPause retry.Backoff
}

// Lock waits until the caller holds key; see [Locker] for its rules.
func (e *Client) Lock(ctx context.Context, key string, opts ...LockOption) (*Lease, error) {
	return e.start(ctx, key, false, opts)
}

// TryLock makes one attempt to lock key; see [Locker] for its rules.
func (e *Client) TryLock(ctx context.Context, key string, opts ...LockOption) (*Lease, error) {
	return e.start(ctx, key, true, opts)
}

// start checks the arguments, and re-enters or acquires.
func (e *Client) start(ctx context.Context, key string, try bool, opts []LockOption) (*Lease, error) {
	if ctx == nil {
		return nil, invalid("Lock needs a context")
	}
	set, err := e.set.forCall(opts)
	if err != nil {
		return nil, err
	}
	full := e.set.prefix + key
	if err := checkKey(key, full); err != nil {
		return nil, err
	}
	owner, named, err := explicitOwner(ctx)
	if err != nil {
		return nil, err
	}
	c := &call{e: e, callSettings: set, ctx: ctx, caller: ctx, op: "lock", key: full,
		waiter: waiter{owner: owner, named: named && !set.alone}, s: e.stripeOf(full), began: e.sched.Now()}
	switch {
	case set.what != "":
		c.op = set.what
	case try:
		c.op = "try to lock"
	}
	defer c.leave()
	if !try && c.wait > 0 {
		var cancel context.CancelFunc
		wait := cmp.Or(c.partOf, &waitBudget{c.wait, time.Now()})
		c.ctx, cancel = wait.bound(ctx)
		defer cancel()
	}
	lease, err := c.run(try || c.wait == 0)
	if err != nil && e.notices.wanted {
		e.notices.event(ctx, c.event(EventNotAcquired, 0, err))
	}
	return lease, err
}

func (e *Client) stripeOf(key string) *stripe {
	return &e.stripes[maphash.String(e.seed, key)%uint64(len(e.stripes))]
}

func (c *call) run(try bool) (l *Lease, err error) {
	if c.e.closing.Load() {
		return nil, c.fail(ErrClosed, nil, "")
	}
	var outer *Lease
	if _, ok := LeaseFromContext(c.caller); ok {
		if outer, err = c.outer(); err != nil {
			return nil, err
		}
	}
	switch {
	case outer != nil && !outer.claim.alive():
		return nil, c.lost(outer.claim.outcome())
	case c.ctx.Err() != nil:
		return nil, c.fail(ErrNotAcquired, c.ctxError(), "")
	case outer != nil && !c.mayEnter():
		return nil, c.fail(ErrClosed, nil, "")
	case outer != nil:
		if l, err = c.reenter(outer, try); !errors.Is(err, errGone) {
			return l, err
		}
	}
	if c.e.set.sticky > 0 {
		if l = c.takeKept(try); l != nil {
			return l, nil
		}
	}
	if try {
		return c.tryLock()
	}
	return c.lock()
}

// outer returns the lease that this call re-enters: one that the caller's context carries, or
// nil.
func (c *call) outer() (*Lease, error) {
	l, _ := c.caller.Value(carried{e: c.e, key: c.key, anyOwner: true}).(*Lease)
	if c.limit > 0 || l != nil && l.claim.Limit > 0 {
		return c.outerPermit(l)
	}
	if c.owner != readers && c.e.readerIn(c.caller, c.key) != nil {
		return nil, c.fail(ErrInvalid, nil, "a reader of this RWLock cannot become its writer: unlock it first")
	}
	l, _ = c.caller.Value(carried{e: c.e, key: c.key}).(*Lease)
	return l, nil
}

func (c *call) event(kind EventKind, token int64, err error) Event {
	return Event{Kind: kind, Strategy: c.e.name, Key: c.e.userKey(c.key), Owner: c.owner, Token: token,
		Duration: c.e.sched.Now() - c.began, Err: err}
}

func (c *call) fail(kind, why error, hint string) error {
	return &opError{strategy: c.e.name, op: c.op, key: c.e.userKey(c.key), kind: kind, why: why, hint: hint}
}

// ended reports whether the call's wait is over: its context has ended, or is about to,
// since its deadline has passed. A connection with that deadline notices it before the
// context's timer has had its turn, by any length of time on a busy machine.
func (c *call) ended() bool { return c.ctx.Err() != nil || deadlinePassed(c.ctx) }

// deadlinePassed reports whether ctx ends by a deadline that has passed. A context that was
// detached from its parent's end may have kept the deadline.
func deadlinePassed(ctx context.Context) bool {
	d, ok := ctx.Deadline()
	return ok && ctx.Done() != nil && !time.Now().Before(d)
}

// ctxError returns why the caller's context ended; nil if it has not.
func (c *call) ctxError() error {
	err := c.caller.Err()
	if err == nil && deadlinePassed(c.caller) {
		return context.DeadlineExceeded
	}
	if cause := context.Cause(c.caller); err != nil && !errors.Is(err, cause) {
		return fmt.Errorf("%w: %w", err, cause)
	}
	return err
}

// unavailable returns the error of a call that the store, or the way to it, has failed.
func (c *call) unavailable(why error, hint string) error {
	for _, kind := range []error{ErrConflict, ErrInvalid, ErrClosed} {
		if errors.Is(why, kind) {
			return c.fail(kind, why, hint)
		}
	}
	why = withoutContextErrorsBut(c.caller, why)
	if err := c.ctxError(); err != nil && !errors.Is(why, err) {
		why = &lastFailure{err, why}
	}
	return c.fail(ErrUnavailable, why, hint)
}

// lost returns the error of a call that would re-enter what its owner has lost.
func (c *call) lost(loss error) error {
	if l, ok := loss.(*lossError); ok { //nolint:errorlint // as it is: the outer error has the rest
		loss = l.cause
	}
	return c.fail(ErrLost, loss, "unlock the lost leases of this owner before locking anew")
}

// command calls f, which sends the store one command. The context of f ends after d, and
// earlier with the caller's context or with Close.
func (c *call) command(d time.Duration, f func(ctx context.Context) error) error {
	if c.e.closing.Load() {
		return &driver.StoreError{Err: ErrClosed, NotApplied: true}
	}
	ctx := bound.New(c.ctx, d, c.e.life)
	defer ctx.Stop()
	err := f(ctx)
	if err != nil && c.e.closing.Load() && ctx.Err() != nil && c.ctx.Err() == nil {
		return &driver.StoreError{Err: &lastFailure{ErrClosed, withoutContextErrors(err)}, NotApplied: !driver.MaybeApplied(err)}
	}
	return err
}

// newID returns a claim id that is unique across processes and time.
func (e *Client) newID() string {
	return e.newIDWith(e.set.call.metadata)
}

// metadataIn returns the metadata in a claim's id as it stands there.
func metadataIn(id string) string {
	if i := strings.Index(id, driver.MetadataMark); i >= 0 {
		return id[i:]
	}
	return ""
}

func (e *Client) newIDWith(metadata string) string {
	var id [64]byte
	return string(append(strconv.AppendUint(append(id[:0], e.idPrefix...), e.claims.Add(1), 10), metadata...))
}

// newClaim returns the claim that the next attempt asks for.
func (c *call) newClaim() driver.Claim {
	id := c.e.newIDWith(c.metadata)
	return driver.Claim{Key: c.key, ID: id, Owner: cmp.Or(c.owner, id), TTL: c.ttl, Permits: c.permits, Limit: c.limit}
}

// forCall returns the settings of a call with opts.
func (s *settings) forCall(opts []LockOption) (callSettings, error) {
	if len(opts) == 0 {
		return s.call, nil
	}
	c := s.call
	for _, o := range opts {
		if o == nil {
			return c, invalid("an option is nil")
		}
		o.applyCall(&c)
	}
	if c.err == nil {
		c.err = s.check(&c)
	}
	return c, c.err
}

// checkKey refuses keys that no strategy takes; prefixed is the key as in the store.
func checkKey(key, prefixed string) error {
	switch {
	case key == "":
		return invalid("the key is empty")
	case len(key) > MaxKeyLen:
		return invalid("the key is %d bytes long, at most %d are allowed", len(key), MaxKeyLen)
	case !utf8.ValidString(key):
		return invalid("the key %.40q is not UTF-8", key)
	case strings.HasPrefix(prefixed, reserved):
		return invalid("the key %.40q, with its prefix, begins with %q, as the library's own keys do", prefixed, reserved)
	}
	return nil
}

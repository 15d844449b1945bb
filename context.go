package locker

import (
	"context"
	"errors"
	"unicode/utf8"
)

// leaseCtx is the context of a lease: a child of the parent that the lease
// cancels, so it needs no goroutine. Each of its methods looks at the clock first, so that the
// context is never alive after the lease's end because a timer is late. context.Cause and the
// derivation of children go through Value and Done, so these two look at the clock as well.
type leaseCtx struct {
	context.Context // the cancellable child of parent
	parent          shield
	l               *Lease
	cancel          context.CancelCauseFunc
	unhook          func() bool // stops the AfterFunc that forgets this context when parent ends
}

// shield is the parent of a lease's context as package context knows it. It asks the user's
// own type for Done once, when the context is made, and for AfterFunc never: so what that
// type does later does not hold up the end of the child.
type shield struct {
	context.Context
	done <-chan struct{}
}

// Done implements [context.Context].
func (s *shield) Done() <-chan struct{} { return s.done }

// check ends the context if its lease is over. The goroutine that finds the loss
// may not have come to cancel it yet, so the caller who asks does.
func (c *leaseCtx) check() {
	if c.l.claim.inTime() {
		return
	}
	if cause := c.l.over(); cause != nil {
		c.cancel(cause)
	}
}

func (c *leaseCtx) Done() <-chan struct{} {
	c.check()
	return c.Context.Done()
}

func (c *leaseCtx) Err() error {
	c.check()
	err := c.Context.Err()
	if err == nil {
		return nil
	}
	if cause := context.Cause(c.Context); errors.Is(cause, ErrLost) {
		return lostContextError{cause}
	}
	return err
}

func (c *leaseCtx) Value(key any) any {
	switch k := key.(type) {
	case innermost:
		return c.l
	case contextOf:
		if k.l == c.l {
			return c
		}
		return c.Context.Value(key)
	case carried:
		if c.l.answers(k) {
			return c.l
		}
		return c.Context.Value(key)
	}
	c.check()
	return c.Context.Value(key)
}

// lostContextError is the Err of a lease context whose lease is lost: Canceled,
// as contexts go, and ErrLost.
type lostContextError struct{ cause error }

func (e lostContextError) Error() string   { return e.cause.Error() }
func (e lostContextError) Unwrap() []error { return []error{context.Canceled, e.cause} }

// Keys of a context's Value.
type (
	// innermost: the lease of the innermost lease context.
	innermost struct{}
	// contextOf: the innermost context of one lease.
	contextOf struct{ l *Lease }
	// carried: the innermost lease that lets a Lock of key re-enter.
	carried struct {
		e     *Client
		key   string
		named bool // only leases of owner
		owner string

		anyOwner bool // whatever owner is named
	}
	// ownerKey: the owner named by ContextWithOwner.
	ownerKey struct{}
	// readsKey: that owner is RLock's.
	readsKey struct{}
)

// LeaseFromContext returns the lease of the innermost [Lease.Context] that ctx is
// or derives from, held or not: so the function under [Do] reaches the token.
func LeaseFromContext(ctx context.Context) (*Lease, bool) {
	if ctx == nil {
		return nil, false
	}
	l, ok := ctx.Value(innermost{}).(*Lease)
	return l, ok
}

// ContextWithOwner names the caller for every Lock under the returned context:
// all who use the same owner share its locks and re-enter them. Use it where
// re-entry must cross goroutines that share no lease context, or, with
// hashreentrant and blpop, processes. An owner is 1 byte to 1 KiB of UTF-8; Lock
// refuses others, and a nil ctx, with [ErrInvalid].
func ContextWithOwner(ctx context.Context, owner string) context.Context {
	if ctx == nil {
		return &ownerCtx{context.Background(), "", false}
	}
	return &ownerCtx{ctx, owner, false}
}

// ownerCtx names an owner. Leases carried by its ancestors help a Lock under it
// only if they are that owner's.
type ownerCtx struct {
	context.Context
	owner string
	reads bool // it is that of an RWLock's readers
}

func (c *ownerCtx) Value(key any) any {
	switch k := key.(type) {
	case ownerKey:
		return c.owner
	case readsKey:
		return c.reads
	case carried:
		if !k.named && !k.anyOwner {
			k.named, k.owner = true, c.owner
		}
		return c.Context.Value(k)
	}
	return c.Context.Value(key)
}

// Context returns a child of parent that ends with the lease. After a loss its Err and its cause
// ([context.Cause]) match [ErrLost]; after Unlock they are [context.Canceled]. After a loss Err matches
// [context.Canceled], too: test for ErrLost first. Lock on the lease's key under this context re-enters.
// The context takes no goroutine. It lives until the lease or parent ends.
func (l *Lease) Context(parent context.Context) context.Context {
	switch {
	case parent == nil:
		return endedContext(context.Background(), invalid("Lease.Context needs a parent context"))
	case l.zero():
		return endedContext(parent, errZeroLease("Context"))
	}
	c := &leaseCtx{parent: shield{parent, parent.Done()}, l: l}
	c.Context, c.cancel = context.WithCancelCause(&c.parent)
	if c.parent.done != nil {
		// Forgotten when parent ends: a long lease may see many requests. (A hook on the
		// child needs no goroutine, whatever type parent is.)
		c.unhook = context.AfterFunc(c.Context, func() { l.forget(c) })
	}
	if cause := l.remember(c); cause != nil {
		c.end(cause)
	} else if c.Context.Err() != nil {
		l.forget(c) // it ended before it was remembered
	}
	return c
}

func endedContext(parent context.Context, cause error) context.Context {
	ctx, cancel := context.WithCancelCause(parent)
	cancel(cause)
	return ctx
}

// remember notes that c ends with the lease, or returns why the lease is over already.
func (l *Lease) remember(c *leaseCtx) error {
	defer l.claim.lock().Unlock()
	if cause := l.ended(); cause != nil {
		return cause
	}
	if l.ctxs == nil {
		l.ctxs = make(leaseContexts)
	}
	l.ctxs[c] = struct{}{}
	return nil
}

func (l *Lease) forget(c *leaseCtx) {
	l.claim.s.mu.Lock()
	defer l.claim.s.mu.Unlock()
	delete(l.ctxs, c)
}

type leaseContexts map[*leaseCtx]struct{}

// end ends the context. It asks its parents for values, which may be the user's own
// types or contexts of the same claim: so it must not be called under the mutex, nor where it
// delays a loss.
func (c *leaseCtx) end(cause error) {
	if c.unhook != nil {
		c.unhook()
	}
	c.cancel(cause)
}

// untied returns ctx without l's cancellation: the parent of l's outermost context in ctx,
// with ctx's own deadline.
func (l *Lease) untied(ctx context.Context) (context.Context, context.CancelFunc) {
	if ctx.Done() == nil {
		return ctx, func() {}
	}
	c, ok := ctx.Value(contextOf{l}).(*leaseCtx)
	if !ok {
		return ctx, func() {}
	}
	deadline, bounded := ctx.Deadline()
	for ; ok; c, ok = ctx.Value(contextOf{l}).(*leaseCtx) {
		ctx = c.parent.Context
	}
	if !bounded {
		return ctx, func() {}
	}
	return context.WithDeadline(ctx, deadline)
}

// explicitOwner returns the owner that ContextWithOwner has named, if it has.
func explicitOwner(ctx context.Context) (owner string, named bool, err error) {
	owner, named = ctx.Value(ownerKey{}).(string)
	if reads, _ := ctx.Value(readsKey{}).(bool); owner == readers && !reads {
		return "", true, invalid("ContextWithOwner: %q is the name of an RWLock's readers", owner)
	}
	if named && (owner == "" || len(owner) > maxOwnerLen || !utf8.ValidString(owner)) {
		return "", true, invalid("ContextWithOwner takes a context and an owner of 1 to %d bytes of UTF-8, not %d bytes %.40q", maxOwnerLen, len(owner), owner)
	}
	return owner, named, nil
}

package locker

import (
	"context"
	"errors"
)

var errCanceled = context.Canceled

// leaseCtx is the context of a lease. It is a cancelled-from-outside child of
// the parent, so it needs no goroutine; and each of its methods looks at the
// clock first, so that nobody is told "go on" after the lease's end because a
// timer is late. context.Cause and the derivation of children go through Value
// and Done, hence those too.
type leaseCtx struct {
	context.Context // the cancellable child of parent
	l               *Lease
	cancel          context.CancelCauseFunc
	unhook          func() bool // of the AfterFunc that forgets this context when parent ends
}

// check ends the context if its lease is over. Whoever finds that cancels it
// himself: the loss may have been found by another goroutine that has not come
// to it yet.
func (c *leaseCtx) check() {
	if c.l.claim.checkClock() {
		if cause := c.l.over(); cause != nil {
			c.cancel(cause)
		}
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
	if q, ok := key.(carried); ok {
		if c.l.answers(q) {
			return c.l
		}
		return c.Context.Value(key)
	}
	c.check()
	return c.Context.Value(key)
}

// carried asks a context for the innermost lease it carries that lets a Lock of
// key re-enter.
type carried struct {
	e     *engine
	key   string
	named bool // only leases of owner
	owner string
}

// ownerCtx names an owner. Leases carried by its ancestors help a Lock under it
// only if they are that owner's.
type ownerCtx struct {
	context.Context
	owner string
}

func (c *ownerCtx) Value(key any) any {
	switch k := key.(type) {
	case ownerKey:
		return c.owner
	case carried:
		if !k.named {
			k.named, k.owner = true, c.owner
		}
		return c.Context.Value(k)
	}
	return c.Context.Value(key)
}

// newContext derives the lease's context from parent.
func (l *Lease) newContext(parent context.Context) context.Context {
	l.claim.checkClock()
	inner, cancel := context.WithCancelCause(parent)
	c := &leaseCtx{Context: inner, l: l, cancel: cancel}
	cause := l.over()
	if cause == nil {
		// Forgotten when parent ends: a long lease may see many requests.
		var unhook func() bool
		if parent.Done() != nil {
			unhook = context.AfterFunc(parent, func() { l.forget(c) })
		}
		l.claim.mu.Lock()
		c.unhook = unhook
		if l.state == leaseHeld {
			if l.ctxs == nil {
				l.ctxs = make(leaseContexts)
			}
			l.ctxs[c] = struct{}{}
			l.claim.mu.Unlock()
			if parent.Err() != nil {
				l.forget(c)
			}
			return c
		}
		l.claim.mu.Unlock()
		cause = l.over()
		if unhook != nil {
			unhook()
		}
	}
	cancel(cause)
	return c
}

func (l *Lease) forget(c *leaseCtx) {
	l.claim.mu.Lock()
	delete(l.ctxs, c)
	l.claim.mu.Unlock()
}

type leaseContexts map[*leaseCtx]struct{}

// end ends all contexts. Not under claim.mu: cancelling asks the parents, which
// may be contexts of the same claim.
func (cs leaseContexts) end(cause error) {
	for c := range cs {
		if c.unhook != nil {
			c.unhook()
		}
		c.cancel(cause)
	}
}

// Package bound makes the contexts of a Locker's commands. They cost next to nothing until
// the first call of Done: a driver that calls [Ends] needs none.
package bound

import (
	"context"
	"errors"
	"sync/atomic"
	"time"
)

// Context ends with its parent, at a time, when a Locker is closed, or by Stop.
type Context struct {
	caller                 // the parent
	at     time.Time       // when it ends by itself
	closed context.Context // ends with the Locker; nil: it does not matter
	real   atomic.Pointer[cancellable]
}

// caller is the context of the user's call, as a driver sees it: its Err is one of package context's errors.
// The user's own Err may say more: that of a lease's context reports that this lease is lost, and a driver that
// wraps it would seem to report that the store denies the claim of the command.
type caller struct{ context.Context }

// Err implements [context.Context].
func (c *caller) Err() error { return End(c.Context) }

// AfterFunc lets package context derive children without a goroutine each, where the user's type can.
func (c *caller) AfterFunc(f func()) (stop func() bool) { return context.AfterFunc(c.Context, f) }

// End returns how ctx has ended, as one of package context's errors, whatever ctx's own Err is; nil if it has not.
func End(ctx context.Context) error {
	switch err := ctx.Err(); {
	case err == nil:
		return nil
	case errors.Is(err, context.DeadlineExceeded):
		return context.DeadlineExceeded
	}
	return context.Canceled
}

// cancellable is the context behind a Context, made at the first Done.
type cancellable struct {
	context.Context
	end func()
}

// stopped marks a Context that was stopped before its first Done.
var stopped = func() *cancellable {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return &cancellable{ctx, cancel}
}()

// New makes a Context that ends d from now. closed may be nil.
func New(parent context.Context, d time.Duration, closed context.Context) *Context { //nolint:revive // of two contexts one comes last
	return &Context{caller: caller{Undated(parent)}, at: time.Now().Add(d), closed: closed}
}

// undated is a context that never ends.
type undated struct{ context.Context }

// Deadline implements [context.Context].
func (undated) Deadline() (time.Time, bool) { return time.Time{}, false }

// Undated returns ctx without its Deadline if ctx never ends: some types of context that were
// detached from their parent's end have kept its Deadline. Package context takes that for the
// time at which the parent ends its children, and sets no timer of theirs.
func Undated(ctx context.Context) context.Context {
	if _, ok := ctx.Deadline(); ok && ctx.Done() == nil {
		return undated{ctx}
	}
	return ctx
}

// Deadline implements [context.Context].
func (c *Context) Deadline() (time.Time, bool) {
	if at, ok := c.Context.Deadline(); ok && at.Before(c.at) {
		return at, true
	}
	return c.at, true
}

// Done implements [context.Context].
func (c *Context) Done() <-chan struct{} { return c.made().Done() }

// AfterFunc lets package context derive children without a goroutine each.
func (c *Context) AfterFunc(f func()) (stop func() bool) { return context.AfterFunc(c.made(), f) }

// made returns the cancellable context, and makes it if need be.
func (c *Context) made() *cancellable {
	if r := c.real.Load(); r != nil {
		return r
	}
	ctx, cancel := context.WithDeadline(&c.caller, c.at)
	r := &cancellable{ctx, cancel}
	if c.closed != nil {
		unhook := context.AfterFunc(c.closed, cancel)
		r.end = func() { unhook(); cancel() }
	}
	if c.real.CompareAndSwap(nil, r) {
		return r
	}
	r.end()
	return c.real.Load()
}

// Err implements [context.Context].
func (c *Context) Err() error {
	r := c.real.Load()
	switch {
	case r != nil && r != stopped:
		return r.Err()
	case c.caller.Context.Err() != nil:
		return End(c.caller.Context)
	case r == stopped || c.closed != nil && c.closed.Err() != nil:
		return context.Canceled
	case !time.Now().Before(c.at):
		return context.DeadlineExceeded
	}
	return nil
}

// Stop ends the context.
func (c *Context) Stop() {
	if !c.real.CompareAndSwap(nil, stopped) {
		c.real.Load().end()
	}
}

// Sleep waits for d and reports true, or false when ctx or stop, which may be nil, ended it.
func Sleep(ctx context.Context, stop <-chan struct{}, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	case <-stop:
		return false
	}
}

// Ends returns the contexts by whose ends ctx ends before its time: the caller's, and
// the Locker's or nil; and the time at which ctx ends by itself, zero for never. The Err of the caller's is one
// of package context's errors.
func Ends(ctx context.Context) (caller, locker context.Context, at time.Time) {
	if c, ok := ctx.(*Context); ok {
		return &c.caller, c.closed, c.at
	}
	return ctx, nil, time.Time{}
}

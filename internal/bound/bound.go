// Package bound has the contexts of a Locker's commands. They cost next to nothing until
// their Done is asked for: a driver that waits by [Context.Wait] never does.
package bound

import (
	"context"
	"sync"
	"time"
)

// Context ends with its parent, at a time, when a Locker is closed, or by Stop.
type Context struct {
	context.Context                 // the parent
	at              time.Time       // when it ends by itself
	closed          context.Context // ends with the Locker; nil: it does not matter

	mu      sync.Mutex
	real    context.Context // made when Done is asked for
	cancel  context.CancelFunc
	unhook  func() bool
	stopped bool
}

// New makes a Context that ends d from now. closed may be nil.
func New(parent context.Context, d time.Duration, closed context.Context) *Context {
	return &Context{Context: parent, at: time.Now().Add(d), closed: closed}
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

// AfterFunc has package context derive children without a goroutine each.
func (c *Context) AfterFunc(f func()) (stop func() bool) { return context.AfterFunc(c.made(), f) }

func (c *Context) made() context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.real == nil {
		c.real, c.cancel = context.WithDeadline(c.Context, c.at)
		switch {
		case c.stopped:
			c.cancel()
		case c.closed != nil:
			c.unhook = context.AfterFunc(c.closed, c.cancel)
		}
	}
	return c.real
}

// Err implements [context.Context].
func (c *Context) Err() error {
	c.mu.Lock()
	real, stopped := c.real, c.stopped
	c.mu.Unlock()
	switch {
	case real != nil:
		return real.Err()
	case c.Context.Err() != nil:
		return c.Context.Err()
	case stopped || c.closed != nil && c.closed.Err() != nil:
		return context.Canceled
	case !time.Now().Before(c.at):
		return context.DeadlineExceeded
	}
	return nil
}

// Stop ends the context.
func (c *Context) Stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stopped = true
	if c.cancel != nil {
		c.cancel()
	}
	if c.unhook != nil {
		c.unhook()
	}
}

// Wait returns nil when it receives from done, or the error of ctx when that ends. timer
// is stopped, and is not used any more when Wait returns.
func Wait(ctx context.Context, done <-chan struct{}, timer *time.Timer) error {
	c, ok := ctx.(*Context)
	if !ok {
		select {
		case <-done:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	var closed <-chan struct{}
	if c.closed != nil {
		closed = c.closed.Done()
	}
	timer.Reset(time.Until(c.at))
	defer timer.Stop()
	select {
	case <-done:
		return nil
	case <-c.Context.Done():
		return c.Context.Err()
	case <-closed:
		return context.Canceled
	case <-timer.C:
		return context.DeadlineExceeded
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
// the Locker's or nil.
func Ends(ctx context.Context) (caller, locker context.Context) {
	if c, ok := ctx.(*Context); ok {
		return c.Context, c.closed
	}
	return ctx, nil
}

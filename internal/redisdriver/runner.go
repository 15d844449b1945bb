package redisdriver

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/distlock/locker/driver"
	"github.com/redis/go-redis/v9"
)

const (
	// lastWord is how long a caller whose ctx has ended waits for the client's own
	// error, which may say that nothing was sent.
	lastWord = 10 * time.Millisecond
	// hungAfter is how long after its deadline a command is taken for one that never
	// returns: a client that is not go-redis's own need not keep deadlines.
	hungAfter = time.Second
)

// runner runs commands beside their callers, so that a caller leaves when its ctx
// ends. go-redis keeps deadlines, but does not look at a cancellation while a
// command is on the wire; wrapped clients may keep neither.
//
// The contexts of the Locker can all be cancelled, by Close at least, and a
// context does not tell by what it ends. So each command has a goroutine.
type runner struct {
	inline bool // commands run on the caller's goroutine
	count  atomic.Int32
	mu     sync.Mutex
	left   map[*flight]struct{}
}

// flight is a command, and one that its caller left behind is in runner.left until
// it has returned.
type flight struct {
	script *Script
	claim  string
	reply  any
	err    error
	done   chan struct{} // closed when it has returned
	over   chan struct{} // closed when it is not waited for any more
}

// do runs f, which sends script for a claim. late, if any, is called when f has
// returned after the caller left. f goes by its ctx, and the client does as far as it
// can: a wait for a connection ends with it.
func (r *runner) do(ctx context.Context, script *Script, claim string, late func(), f func() (any, error)) (any, error) {
	if r.inline || ctx.Done() == nil {
		return f()
	}
	if ctx.Err() != nil {
		return nil, notSent(ctx.Err())
	}
	fl := &flight{script: script, claim: claim, done: make(chan struct{})}
	go func() {
		fl.reply, fl.err = f()
		close(fl.done)
	}()
	select {
	case <-fl.done:
		return fl.reply, fl.err
	case <-ctx.Done():
	}
	timer := time.NewTimer(lastWord)
	defer timer.Stop()
	select {
	case <-fl.done:
		return fl.reply, fl.err
	case <-timer.C:
	}
	r.leave(ctx, fl, late)
	return nil, fmt.Errorf("the store has not answered: %w", ctx.Err())
}

// leave notes that the caller of fl goes.
func (r *runner) leave(ctx context.Context, fl *flight, late func()) {
	most := hungAfter
	if end, ok := ctx.Deadline(); ok {
		most += time.Until(end)
	}
	fl.over = make(chan struct{})
	r.mu.Lock()
	if r.left == nil {
		r.left = make(map[*flight]struct{})
	}
	r.left[fl] = struct{}{}
	r.mu.Unlock()
	r.count.Add(1)
	go func() {
		timer := time.NewTimer(most)
		defer timer.Stop()
		select {
		case <-fl.done:
		case <-timer.C:
		}
		if late != nil {
			late()
		}
		r.mu.Lock()
		delete(r.left, fl)
		r.mu.Unlock()
		r.count.Add(-1)
		close(fl.over)
	}()
}

// wait returns when no command that was left behind matches any more, or with an
// error when ctx ends.
func (r *runner) wait(ctx context.Context, matches func(*flight) bool) error {
	if r.count.Load() == 0 {
		return nil
	}
	r.mu.Lock()
	var all []*flight
	for fl := range r.left {
		if matches(fl) {
			all = append(all, fl)
		}
	}
	r.mu.Unlock()
	for _, fl := range all {
		select {
		case <-fl.over:
		case <-ctx.Done():
			return notSent(fmt.Errorf("an earlier command of the claim is unanswered: %w", ctx.Err()))
		}
	}
	return nil
}

// close waits for commands that were left behind, for d at most.
func (r *runner) close(d time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	_ = r.wait(ctx, func(*flight) bool { return true })
}

// WaitFor waits for done, for d at most.
func WaitFor(done <-chan struct{}, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	}
}

// notSent is the error of a command that did not leave this process.
func notSent(err error) error {
	return &driver.StoreError{Err: fmt.Errorf("it was not sent: %w", err), NotApplied: true}
}

// ended refines the error of a command. The private client has no hooks and sends a
// command once; it gives the error of a context only while it waits for a connection,
// unless it is a cluster's, which may be between two nodes.
func (c *clients) ended(on processor, err error) error {
	_, one := c.control.(*redis.Client)
	if one && c.private && on == processor(c.control) &&
		(errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)) {
		return notSent(err)
	}
	return err
}

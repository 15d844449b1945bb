package suite

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/internal/child"
)

const childKind = "conformance child"

// Child is a process of its own that uses the harness's store. It dies with the
// test.
type Child struct {
	p    *child.Child
	next atomic.Int64

	mu    sync.Mutex
	in    *json.Encoder
	calls map[int]*ChildCall
	gone  bool
}

// childRequest is a line to a child, childAnswer one from it.
type (
	childRequest struct {
		ID    int
		Op    string // lock, unlock, renew, contend, ask
		Lock  ChildLock
		Lease int    // the ID of the request that got it
		File  string // contend: exists while somebody is inside
		N     int    // contend: how often
	}
	childAnswer struct {
		ID    int
		Event string // "", or waiting, lost
		Err   string
		Kinds []int // of childErrors
		Token int64
		N     int // contend: how often two were inside; ask: wrong answers
	}
)

// childErrors are the errors that keep their identity between processes.
var childErrors = []error{
	locker.ErrNotAcquired, locker.ErrLost, locker.ErrNotHeld, locker.ErrUnavailable, locker.ErrConflict,
	locker.ErrInvalid, locker.ErrClosed, context.Canceled, context.DeadlineExceeded,
}

type childError struct{ childAnswer }

func (e childError) Error() string { return e.Err }

func (e childError) Unwrap() []error {
	var errs []error
	for _, i := range e.Kinds {
		errs = append(errs, childErrors[i])
	}
	return errs
}

// StartChild starts this test binary as a child: its TestMain has to call
// [ServeChild], whose newLocker is given spec.
func StartChild(tb testing.TB, spec string) *Child {
	tb.Helper()
	p, err := child.Start(childKind, spec, nil)
	if err != nil {
		tb.Fatal(err)
	}
	c := &Child{p: p, in: json.NewEncoder(p), calls: map[int]*ChildCall{}}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		c.listen(bufio.NewScanner(p))
		_ = p.Wait()
	}()
	tb.Cleanup(func() {
		c.Kill()
		<-ended
	})
	return c
}

// listen hands what the child says to those who wait for it.
func (c *Child) listen(lines *bufio.Scanner) {
	for lines.Scan() {
		var a childAnswer
		if json.Unmarshal(lines.Bytes(), &a) != nil {
			continue // somebody printed something
		}
		c.mu.Lock()
		call := c.calls[a.ID]
		c.mu.Unlock()
		switch {
		case call == nil:
		case a.Event == "waiting":
			close(call.waiting)
		case a.Event == "lost":
			close(call.lost)
		default:
			call.answer = a
			close(call.done)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.gone = true
	for _, call := range c.calls {
		select {
		case <-call.done:
		default:
			call.answer.Err = "the child process has ended"
			close(call.done)
		}
	}
}

// Kill ends the process as kill -9 does.
func (c *Child) Kill() { c.p.Kill() }

// ChildCall is something that a child was asked to do: mostly a Lock, and then the lease it
// got.
type ChildCall struct {
	c       *Child
	answer  childAnswer // after done
	done    chan struct{}
	waiting chan struct{}
	lost    chan struct{}
}

func (c *Child) send(r childRequest) *ChildCall {
	r.ID = int(c.next.Add(1))
	call := &ChildCall{c: c, done: make(chan struct{}), waiting: make(chan struct{}), lost: make(chan struct{})}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls[r.ID] = call
	call.answer.ID = r.ID
	if err := c.in.Encode(r); err != nil || c.gone {
		call.answer.Err = fmt.Sprintf("the child process has ended: %v", err)
		close(call.done)
	}
	return call
}

// ChildLock is a Lock in a child.
type ChildLock struct {
	Key            string
	Owner          string // "" for none
	TTL            time.Duration
	Try            bool
	WithoutRenewal bool
}

// Start makes the child lock, and does not wait for it.
func (c *Child) Start(r ChildLock) *ChildCall { return c.send(childRequest{Op: "lock", Lock: r}) }

// Contend makes the child enter a section n times in which file must not exist yet. The
// call's N is how often it did.
func (c *Child) Contend(r ChildLock, n int, file string) *ChildCall {
	return c.send(childRequest{Op: "contend", Lock: r, N: n, File: file})
}

// Waiting is closed when the child's Lock waits, as for [T.Wait].
func (l *ChildCall) Waiting() <-chan struct{} { return l.waiting }

// Done is closed when the child has answered.
func (l *ChildCall) Done() <-chan struct{} { return l.done }

// Lost is closed when the child reports that the lease's Lost is.
func (l *ChildCall) Lost() <-chan struct{} { return l.lost }

// Err returns the error of the child's call; after Done.
func (l *ChildCall) Err() error {
	if l.answer.Err == "" {
		return nil
	}
	return childError{l.answer}
}

// Token returns the token of the lease; after Done.
func (l *ChildCall) Token() int64 { return l.answer.Token }

// N returns the count of the child; after Done.
func (l *ChildCall) N() int { return l.answer.N }

// AskUntilLost makes the child ask a lease all the time whether it is held. N is how often
// the answer was yes at or after its deadline.
func (l *ChildCall) AskUntilLost() *ChildCall { return l.call("ask") }

func (l *ChildCall) call(op string) *ChildCall {
	return l.c.send(childRequest{Op: op, Lease: l.answer.ID})
}

// ChildLock makes child c lock, which must succeed in time.
func (t *T) ChildLock(c *Child, r ChildLock) *ChildCall {
	t.Helper()
	l := c.Start(r)
	t.NoError(t.answered(l, "lock"), "a child's Lock")
	return l
}

// ChildUnlock makes a child unlock, and returns the error.
func (t *T) ChildUnlock(l *ChildCall) error {
	t.Helper()
	return t.answered(l.call("unlock"), "unlock")
}

// ChildRenew makes a child renew, and returns the error.
func (t *T) ChildRenew(l *ChildCall) error { t.Helper(); return t.answered(l.call("renew"), "renew") }

func (t *T) answered(call *ChildCall, op string) error {
	t.Helper()
	t.Ends(call.done, t.setup.Patience, "a child's answer to "+op)
	return call.Err()
}

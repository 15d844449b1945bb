package conformance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/distlock/locker"
)

// Lock acquires key, which must succeed within Timing.Patience.
func (t *T) Lock(l locker.Locker, key string, opts ...locker.LockOption) *locker.Lease {
	t.Helper()
	return t.LockUnder(t.ctx, l, key, opts...)
}

// LockUnder is Lock under a context, such as that of a lease.
func (t *T) LockUnder(ctx context.Context, l locker.Locker, key string, opts ...locker.LockOption) *locker.Lease {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, t.timing.Patience)
	defer cancel()
	lease, err := l.Lock(ctx, key, opts...)
	return t.granted("Lock", lease, err)
}

// TryLock acquires key, which must succeed at the first attempt.
func (t *T) TryLock(l locker.Locker, key string, opts ...locker.LockOption) *locker.Lease {
	t.Helper()
	lease, err := l.TryLock(t.ctx, key, opts...)
	return t.granted("TryLock", lease, err)
}

func (t *T) granted(call string, lease *locker.Lease, err error) *locker.Lease {
	t.Helper()
	if err != nil {
		t.Fatalf("%s failed: %v", call, err)
	}
	if lease == nil {
		t.Fatalf("%s returned neither a lease nor an error", call)
	}
	return lease
}

// Unlock gives lease back, which must succeed.
func (t *T) Unlock(lease *locker.Lease) {
	t.Helper()
	if err := lease.Unlock(t.ctx); err != nil {
		t.Fatalf("Unlock failed: %v", err)
	}
}

// Taken checks that l is refused key.
func (t *T) Taken(l locker.Locker, key string) {
	t.Helper()
	t.TakenUnder(t.ctx, l, key)
}

// TakenUnder is Taken for the caller that ctx stands for.
func (t *T) TakenUnder(ctx context.Context, l locker.Locker, key string) {
	t.Helper()
	lease, err := l.TryLock(ctx, key)
	if err == nil {
		_ = lease.Unlock(t.ctx)
		t.Fatalf("TryLock succeeded on a key that is held")
	}
	t.Is(err, locker.ErrNotAcquired)
	t.Isnt(err, locker.ErrUnavailable)
}

// Free checks that l is granted key at once, and gives it back.
func (t *T) Free(l locker.Locker, key string) {
	t.Helper()
	t.Unlock(t.TryLock(l, key))
}

// FreeWithin checks that l is granted key within d, and gives it back.
func (t *T) FreeWithin(d time.Duration, l locker.Locker, key string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.ctx, d)
	defer cancel()
	lease, err := l.Lock(ctx, key)
	if err != nil {
		t.Fatalf("the key was not free within %v: %v", d, err)
	}
	t.Unlock(lease)
}

// Is checks that err matches every target.
func (t *T) Is(err error, targets ...error) {
	t.Helper()
	for _, target := range targets {
		if !errors.Is(err, target) {
			t.Fatalf("the error does not match %q: %v", target, errOrNil(err))
		}
	}
}

// Isnt checks that err matches none of the targets.
func (t *T) Isnt(err error, targets ...error) {
	t.Helper()
	for _, target := range targets {
		if errors.Is(err, target) {
			t.Fatalf("the error matches %q: %v", target, err)
		}
	}
}

func errOrNil(err error) string {
	if err == nil {
		return "there is none"
	}
	return err.Error()
}

// Ends waits for c to be closed, at most d.
func (t *T) Ends(c <-chan struct{}, d time.Duration, what string) {
	t.Helper()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-c:
		return // first, in case d is 0
	default:
	}
	select {
	case <-c:
	case <-timer.C:
		t.Fatalf("%s: not within %v", what, d)
	case <-t.ctx.Done():
		t.Fatalf("%s: not by the end of the case", what)
	}
}

// Open checks that c is not closed.
func (t *T) Open(c <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-c:
		t.Fatalf("%s: too early", what)
	default:
	}
}

// Eventually looks until cond holds, at most for d.
func (t *T) Eventually(d time.Duration, what string, cond func() bool) {
	t.Helper()
	for start := time.Now(); !cond(); {
		if time.Since(start) > d {
			t.Fatalf("%s: not within %v", what, d)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// Prompt checks that f returns within Timing.Prompt.
func (t *T) Prompt(what string, f func()) {
	t.Helper()
	start := time.Now()
	f()
	if took := time.Since(start); took > t.timing.Prompt {
		t.Fatalf("%s took %v, more than %v", what, took, t.timing.Prompt)
	}
}

// median checks the median of times, which one stall of the machine does not
// move.
func (t *T) median(what string, times []time.Duration, most time.Duration) {
	t.Helper()
	if m := median(times); m > most {
		t.Errorf("the median of %s is %v, more than %v: %v", what, m, most, times)
	}
}

func median(times []time.Duration) time.Duration {
	return slices.Sorted(slices.Values(times))[len(times)/2]
}

// Sleep lets time pass, for cases whose subject is that it does.
func (t *T) Sleep(d time.Duration) {
	t.Helper()
	select {
	case <-time.After(d):
	case <-t.ctx.Done():
		t.Fatalf("the case ended early")
	}
}

// SleepPast lets time pass until at.
func (t *T) SleepPast(at time.Time) {
	t.Helper()
	t.Sleep(time.Until(at) + time.Millisecond)
}

// NoError checks the error of something done to the store.
func (t *T) NoError(err error, what string) {
	t.Helper()
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// Waiter is a Lock under way in a goroutine.
type Waiter struct {
	Lease  *locker.Lease // after Done
	Err    error         // after Done
	At     time.Time     // when Lock returned; after Done
	Cancel context.CancelFunc

	done <-chan struct{}
}

// Done is closed when Lock has returned.
func (w *Waiter) Done() <-chan struct{} { return w.done }

// Wait starts a Lock in a goroutine and returns once that waits, or is done.
func (t *T) Wait(l locker.Locker, key string, opts ...locker.LockOption) *Waiter {
	t.Helper()
	return t.WaitUnder(t.ctx, l, key, opts...)
}

// WaitUnder is Wait under a context.
func (t *T) WaitUnder(ctx context.Context, l locker.Locker, key string, opts ...locker.LockOption) *Waiter {
	t.Helper()
	w, id := t.startWaiter(ctx, l, key, opts...)
	t.Eventually(t.timing.Patience, "a waiter's goroutine gets going", func() bool {
		select {
		case <-w.done:
			return true
		default:
			return parked(id)
		}
	})
	return w
}

// startWaiter starts a Lock in a goroutine, and gives the goroutine's id.
func (t *T) startWaiter(ctx context.Context, l locker.Locker, key string, opts ...locker.LockOption) (*Waiter, string) {
	ctx, cancel := context.WithCancel(ctx)
	w := &Waiter{Cancel: cancel}
	id := make(chan string, 1)
	w.done = t.Go(func() {
		defer cancel()
		id <- goroutineID()
		w.Lease, w.Err = l.Lock(ctx, key, opts...)
		w.At = time.Now()
	})
	return w, <-id
}

// Granted waits for w to be granted, at most d.
func (t *T) Granted(w *Waiter, d time.Duration) *locker.Lease {
	t.Helper()
	t.Ends(w.done, d, "a waiter is granted the key")
	return t.granted("Lock", w.Lease, w.Err)
}

// Refused waits for w to fail, at most d, and returns its error.
func (t *T) Refused(w *Waiter, d time.Duration) error {
	t.Helper()
	t.Ends(w.done, d, "a waiter gives up")
	if w.Err == nil {
		t.Fatalf("a waiter that should have failed was granted the key")
	}
	return w.Err
}

// goroutineID returns the number of the calling goroutine, as stacks show it.
func goroutineID() string {
	buf := make([]byte, 64)
	buf = buf[:runtime.Stack(buf, false)]
	return string(bytes.Fields(buf)[1])
}

// parked says whether a goroutine waits for an event. There is no other way to
// see from outside that a Lock has taken its place in the queue.
func parked(id string) bool {
	buf := make([]byte, 1<<16)
	for {
		n := runtime.Stack(buf, true)
		if n < len(buf) {
			buf = buf[:n]
			break
		}
		buf = make([]byte, 2*len(buf))
	}
	_, rest, ok := bytes.Cut(buf, fmt.Appendf(nil, "goroutine %s [", id))
	if !ok {
		return false
	}
	state, _, _ := bytes.Cut(rest, []byte("]"))
	state, _, _ = bytes.Cut(state, []byte(","))
	return slices.Contains([]string{"select", "chan receive", "IO wait"}, string(state))
}

// EventLog is an Observer that remembers.
type EventLog struct {
	mu     sync.Mutex
	events []locker.Event
}

// Observe implements [locker.Observer].
func (e *EventLog) Observe(_ context.Context, ev locker.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.events = append(e.events, ev)
}

// All returns the events so far.
func (e *EventLog) All() []locker.Event {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.events)
}

// Count returns how many events of the kind there were so far.
func (e *EventLog) Count(kind locker.EventKind) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	n := 0
	for _, ev := range e.events {
		if ev.Kind == kind {
			n++
		}
	}
	return n
}

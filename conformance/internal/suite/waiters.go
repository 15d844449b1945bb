package suite

import (
	"context"
	"sync"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/internal/test/pace"
)

// WithObserver is [locker.WithObserver] for Lockers of the suite: obs gets every
// event, and the suite goes on seeing which calls wait. A nil obs is for a Locker
// that a case makes without [T.Locker].
func WithObserver(obs locker.Observer) locker.Option {
	return locker.WithObserver(locker.ObserverFunc(func(ctx context.Context, e locker.Event) {
		if m, ok := ctx.Value(markKey{}).(*mark); ok && m.key == e.Key && e.Kind == locker.EventWaiting {
			m.seen()
		}
		if obs != nil {
			obs.Observe(ctx, e)
		}
	}))
}

// mark is in the context of a Lock that is to be seen waiting: the observer of its
// Locker is given the context's values.
type mark struct {
	key     string
	once    sync.Once
	waiting chan struct{}
}

func (m *mark) seen() { m.once.Do(func() { close(m.waiting) }) }

type markKey struct{}

// SeenWaiting does what the suite's observer does on [locker.EventWaiting], for
// strategies of tests that wait in ways of their own.
func SeenWaiting(ctx context.Context) {
	if m, ok := ctx.Value(markKey{}).(*mark); ok {
		m.seen()
	}
}

// IsMark reports whether a context's value of this key is the suite's.
func IsMark(key any) bool { _, ok := key.(markKey); return ok }

// marked returns a context for a Lock of key, and a channel that is closed when that Lock
// has its place in the queue and waits.
func marked(ctx context.Context, key string) (context.Context, <-chan struct{}) {
	m := &mark{key: key, waiting: make(chan struct{})}
	return context.WithValue(ctx, markKey{}, m), m.waiting
}

// Waiter is a Lock under way in a goroutine.
type Waiter struct {
	Lease  *locker.Lease // after Done
	Err    error         // after Done
	At     pace.Moment   // when Lock returned; after Done
	Cancel context.CancelFunc

	done    <-chan struct{}
	waiting <-chan struct{}
}

// Done is closed when Lock has returned.
func (w *Waiter) Done() <-chan struct{} { return w.done }

// Wait starts a Lock in a goroutine and returns once that waits, or is done: it has
// its place in the queue, and if it is the first of its Locker the store has refused
// it, and its wake-ups are arranged for. An unreachable store does not bring that
// about; see [T.Start].
func (t *T) Wait(l locker.Locker, key string, opts ...locker.LockOption) *Waiter {
	t.Helper()
	return t.WaitUnder(t.ctx, l, key, opts...)
}

// WaitUnder is Wait under a context.
func (t *T) WaitUnder(ctx context.Context, l locker.Locker, key string, opts ...locker.LockOption) *Waiter {
	t.Helper()
	return t.UntilWaits(t.StartUnder(ctx, l, key, opts...))
}

// UntilWaits returns once w waits, or is done.
func (t *T) UntilWaits(w *Waiter) *Waiter {
	t.Helper()
	timeout, stop := pace.Timeout(t.setup.Patience)
	defer stop()
	select {
	case <-w.waiting:
	case <-w.done:
	case <-t.ctx.Done():
	case <-timeout:
		t.Fatalf("Lock neither waits nor returns: no event %q within %v", locker.EventWaiting, t.setup.Patience)
	}
	return w
}

// Crowd makes n callers of l wait for key. The function returned cancels them, and waits for
// them to give up.
func (t *T) Crowd(n int, l locker.Locker, key string) (cancel func()) {
	t.Helper()
	ctx, end := context.WithCancel(t.ctx)
	waiters := make([]*Waiter, n)
	for i := range waiters {
		waiters[i] = t.WaitUnder(ctx, l, key)
	}
	return func() {
		t.Helper()
		end()
		for _, w := range waiters {
			t.Is(t.Refused(w, t.setup.Slack), context.Canceled)
		}
	}
}

// Start starts a Lock in a goroutine and does not wait for anything.
func (t *T) Start(l locker.Locker, key string, opts ...locker.LockOption) *Waiter {
	return t.StartUnder(t.ctx, l, key, opts...)
}

// StartUnder is Start under a context.
func (t *T) StartUnder(ctx context.Context, l locker.Locker, key string, opts ...locker.LockOption) *Waiter {
	return t.StartCall(ctx, key, func(ctx context.Context) (*locker.Lease, error) { return l.Lock(ctx, key, opts...) })
}

// StartCall starts any call that waits for key.
func (t *T) StartCall(ctx context.Context, key string, lock func(context.Context) (*locker.Lease, error)) *Waiter {
	ctx, cancel := context.WithCancel(ctx)
	ctx, waiting := marked(ctx, key)
	w := &Waiter{Cancel: cancel, waiting: waiting}
	w.done = t.Go(func() {
		defer cancel()
		w.Lease, w.Err = lock(ctx)
		w.At = pace.Now()
	})
	return w
}

// Waits checks that w has not returned.
func (t *T) Waits(w *Waiter) {
	t.Helper()
	select {
	case <-w.done:
	default:
		return
	}
	if w.Err != nil {
		t.Fatalf("a waiter's Lock has returned while the key is held: %v", w.Err)
	}
	t.Fatalf("a waiter was granted the key, with token %d, %v ago, while it is held", w.Lease.Token(), time.Since(w.At.Time))
}

// Granted waits for w to be granted, at most d.
func (t *T) Granted(w *Waiter, d time.Duration) *locker.Lease {
	t.Helper()
	t.Ends(w.done, d, "a waiter is granted the key")
	return t.Got("Lock", w.Lease, w.Err)
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

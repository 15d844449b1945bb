package suite

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/internal/test/pace"
)

// Lock acquires key, which must succeed within the case's patience.
func (t *T) Lock(l locker.Locker, key string, opts ...locker.LockOption) *locker.Lease {
	t.Helper()
	return t.LockUnder(t.ctx, l, key, opts...)
}

// LockUnder is Lock under a context, such as that of a lease.
func (t *T) LockUnder(ctx context.Context, l locker.Locker, key string, opts ...locker.LockOption) *locker.Lease {
	t.Helper()
	ctx, cancel := t.Bounded(ctx, t.setup.Patience)
	defer cancel()
	lease, err := l.Lock(ctx, key, opts...)
	return t.Got("Lock", lease, err)
}

// TryLock acquires key, which must succeed at the first attempt.
func (t *T) TryLock(l locker.Locker, key string, opts ...locker.LockOption) *locker.Lease {
	t.Helper()
	lease, err := l.TryLock(t.ctx, key, opts...)
	return t.Got("TryLock", lease, err)
}

// Got checks what a call that locks returned.
func (t *T) Got(call string, lease *locker.Lease, err error) *locker.Lease {
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
	lease, err := t.LockWithin(d, l, key)
	if err != nil {
		t.Fatalf("the key was not free within %v: %v", d, err)
	}
	t.Unlock(lease)
}

// LockWithin is l.Lock for at most d.
func (t *T) LockWithin(d time.Duration, l locker.Locker, key string) (*locker.Lease, error) {
	ctx, cancel := t.Bounded(t.ctx, d)
	defer cancel()
	return l.Lock(ctx, key)
}

// Is checks that err matches every target.
func (t *T) Is(err error, targets ...error) {
	t.Helper()
	for _, target := range targets {
		if !errors.Is(err, target) {
			t.Fatalf("the error does not match %q: %v", target, err)
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

// Ends waits for c to be closed, at most d. This and every other upper bound is
// longer while the machine is slow.
func (t *T) Ends(c <-chan struct{}, d time.Duration, what string) {
	t.Helper()
	select {
	case <-c:
		return // first, in case d is 0
	default:
	}
	late, stop := pace.Timeout(d)
	defer stop()
	select {
	case <-c:
	case <-late:
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

// Eventually looks until cond holds, at most for d. It polls: nothing announces a change of
// what cond looks at.
func (t *T) Eventually(d time.Duration, what string, cond func() bool) {
	t.Helper()
	pace.Eventually(t, d, what, cond)
}

// Prompt checks that f returns within the bound for calls that wait for nothing.
func (t *T) Prompt(what string, f func()) {
	t.Helper()
	t.Within(t.setup.Prompt, what, f)
}

// Within checks that f returns within d.
func (t *T) Within(d time.Duration, what string, f func()) {
	t.Helper()
	start := pace.Now()
	f()
	if took := start.Took(); took > d {
		t.Errorf("%s took %v, more than %v", what, took, d)
	}
}

// Median checks the median of times, which one stall of the machine does not
// move.
func (t *T) Median(what string, times []time.Duration, most time.Duration) {
	t.Helper()
	if m := Median(times); m > most {
		t.Errorf("the median of %s is %v, more than %v: %v", what, m, most, times)
	}
}

// Median returns the median of times.
func Median(times []time.Duration) time.Duration {
	return slices.Sorted(slices.Values(times))[len(times)/2]
}

// Bounded returns a child of ctx that is cancelled when d has passed on the suite's
// clock.
func (t *T) Bounded(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	stop := pace.After(d, cancel)
	return ctx, func() { stop(); cancel() }
}

// Until calls do until it succeeds, at most for d. A store that cannot be reached is fine until
// then.
func (t *T) Until(d time.Duration, what string, do func() error) {
	t.Helper()
	for start := pace.Now(); ; {
		err := do()
		if err == nil {
			return
		}
		t.Is(err, locker.ErrUnavailable)
		if start.Took() > d {
			t.Fatalf("%s: not within %v: %v", what, d, err)
		}
	}
}

// RenewedWithin renews lease until the store says yes.
func (t *T) RenewedWithin(d time.Duration, lease *locker.Lease) {
	t.Helper()
	t.Until(d, "Renew", func() error {
		ctx, cancel := t.Bounded(t.ctx, t.setup.Slack)
		defer cancel()
		err := lease.Renew(ctx)
		t.Isnt(err, locker.ErrLost)
		return err
	})
}

// UnlockedWithin unlocks lease until the store says yes.
func (t *T) UnlockedWithin(d time.Duration, lease *locker.Lease) {
	t.Helper()
	t.Until(d, "Unlock", func() error { return lease.Unlock(t.ctx) })
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

// EventLog is an Observer that remembers all events.
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

// Dropped returns how many events were dropped so far.
func (e *EventLog) Dropped() (n int) {
	for _, ev := range e.All() {
		n += ev.Dropped
	}
	return n
}

// Count returns how many events of the kind there were so far.
func (e *EventLog) Count(kind locker.EventKind) int {
	return len(slices.DeleteFunc(e.All(), func(ev locker.Event) bool { return ev.Kind != kind }))
}

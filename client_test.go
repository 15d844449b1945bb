package locker

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/distlock/locker/driver"
)

// wrapped hides what it wraps.
type wrapped struct{ Locker }

// wrapping counts the Locks that go through it, and has Unwrap.
type wrapping struct {
	Locker
	locks int
}

func (w *wrapping) Lock(ctx context.Context, key string, opts ...LockOption) (*Lease, error) {
	w.locks++
	return w.Locker.Lock(ctx, key, opts...)
}

func (w *wrapping) Unwrap() Locker { return w.Locker }

func TestClientOf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, plain)
		var none *Client
		for name, of := range map[string]struct {
			l    Locker
			want bool
		}{
			"a Client":             {b.Client, true},
			"a wrapper":            {&wrapping{Locker: b.Client}, true},
			"two wrappers":         {&wrapping{Locker: &wrapping{Locker: b.Client}}, true},
			"one that hides it":    {wrapped{b.Client}, false},
			"a wrapper of that":    {&wrapping{Locker: wrapped{b.Client}}, false},
			"a wrapper of nothing": {&wrapping{}, false},
			"nil":                  {nil, false},
			"a nil Client":         {none, false},
		} {
			if got, ok := ClientOf(of.l); ok != of.want || ok && got != b.Client {
				t.Errorf("%s: %v, %v, want the Client: %v", name, got, ok, of.want)
			}
		}
	})
}

// A lock that is made of several Locks takes a wrapper's defaults from its Client, and locks
// through the wrapper.
func TestLocksThroughAWrapper(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, plain, WithWait(time.Second))
		w := &wrapping{Locker: b.Client}
		rw, err := NewRWLock(w, "rw")
		if err != nil {
			t.Fatal(err)
		}
		l, err := rw.Lock(t.Context())
		if err != nil || w.locks != 2 {
			t.Fatalf("%v, %d Locks, want 2: the gate and the lock", err, w.locks)
		}
		_, err = rw.Lock(t.Context())
		wantErr(t, err, ErrNotAcquired, "it is locked")
		wantBetween(t, "it failed at", b.at(), time.Second, time.Second, "the wait is the Client's")
		b.unlock(l)
		b.lock(t.Context(), "b")
		_, err = LockAll(t.Context(), w, []string{"a", "b"})
		wantErr(t, err, ErrNotAcquired, "b is locked")
		wantBetween(t, "it failed at", b.at(), 2*time.Second, 2*time.Second, "the wait is the Client's")
	})
}

// A watch is closed though Close comes between a grant and the end of its call.
func TestWatchIsClosedWhenCloseMeetsAGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, notifying)
		b.store.seize("k", "stranger", time.Hour)
		b.locking(t.Context(), "k", WithWait(time.Second))
		s := b.stripeOf("k")
		s.mu.Lock()
		ks := s.keys["k"]
		c := ks.head
		s.ask(c, b.sched.Now())
		s.mu.Unlock()
		b.store.seize("k", "nobody", 0)
		cl := c.newClaim()
		a, sent, err := c.acquire(cl, true, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.grant(cl, a, sent); err != nil {
			t.Fatal(err)
		}
		s.close() // Close has come as far as this stripe
		s.closeWatches()
		if n := b.store.watching(); n != 0 {
			t.Errorf("%d watches are open, want none", n)
		}
		s.mu.Lock()
		s.at("k").push(c) // its goroutine, which knows nothing of the grant, still waits
		s.mu.Unlock()
	})
}

// Close ends a manual Renew.
func TestCloseEndsRenew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, plain)
		l := b.lock(t.Context(), "k")
		b.store.from(opRenew, hang)
		renewing := b.begin(func() (*Lease, error) { return nil, l.Renew(context.Background()) })
		_ = b.Close()
		synctest.Wait()
		if !renewing.over() {
			t.Fatal("Renew goes on after Close")
		}
		wantErr(t, renewing.err, ErrClosed, "Close ended the lease")
	})
}

func panics(*command) error { panic("a bug of the driver's") }

// recovered calls f, which is expected to panic.
func recovered(t *testing.T, f func()) {
	t.Helper()
	defer func() {
		if recover() == nil {
			t.Error("want the driver's panic in the caller")
		}
	}()
	f()
}

// A panic of the driver's in the background ends no process: it is logged, and the release
// tried again.
func TestDriverPanicsInTheBackground(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var logged atomic.Int32
		b := newBench(t, plain, WithLogger(slog.New(userLog{func(r slog.Record) {
			if r.Level == slog.LevelError {
				logged.Add(1)
			}
		}})))
		l := b.lock(t.Context(), "k")
		b.store.next(opRelease, hang, panics)
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		wantErr(t, l.Unlock(ctx), ErrUnavailable, "no answer came")
		b.until(5 * time.Second)
		b.wantSent(opRelease, 3, "it is tried again")
		if n := logged.Load(); n != 1 {
			t.Errorf("%d panics logged, want 1", n)
		}
		b.wantEvents(map[EventKind]int{EventAcquired: 1, EventReleased: 1}, "it was freed")
		b.wantIdle("it was freed")
	})
}

// A driver that panics in an Unlock leaves a lock that is freed, a queue that goes on, and a
// lease that can be unlocked again.
func TestDriverPanicsInUnlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, counting)
		l := b.lock(t.Context(), "k")
		inner := b.lock(l.Context(t.Context()), "k")
		b.store.next(opSetHolds, panics)
		recovered(t, func() { _ = inner.Unlock(t.Context()) })
		next := b.locking(t.Context(), "k")
		b.store.next(opRelease, panics)
		recovered(t, func() { _ = l.Unlock(t.Context()) })
		if err := l.Unlock(t.Context()); err != nil {
			t.Errorf("Unlock called again: %v, want nil", err)
		}
		b.unlock(next.wantLease(t))
		b.wantIdle("all leases are unlocked")
	})
}

// watchPanics is a driver whose first Watch panics.
type watchPanics struct {
	*fake
	fakeNotifier
	first *atomic.Bool
}

func (d watchPanics) Watch(ctx context.Context, key string) (driver.Watch, error) {
	if d.first.CompareAndSwap(false, true) {
		panic("a bug of the driver's")
	}
	return d.fakeNotifier.Watch(ctx, key)
}

// A driver that panics in Watch is asked again: the queue does not poll for ever.
func TestDriverPanicsInWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		l, err := New(watchPanics{f, fakeNotifier{f}, new(atomic.Bool)})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		f.seize("k", "stranger", time.Hour)
		ctx, cancel := context.WithCancel(t.Context())
		for range 2 { // the Watch of one panics; the other one keeps the queue
			go func() {
				defer func() { _ = recover() }()
				_, _ = l.Lock(ctx, "k")
			}()
		}
		time.Sleep(3 * time.Second) // on the bubble's clock: long enough for a watch that failed to be opened again
		if f.watching() != 1 {
			t.Error("no watch is open: the queue polls for ever")
		}
		cancel()
	})
}

func TestZeroPending(t *testing.T) {
	for _, p := range []*Pending{nil, {}} {
		p.Cancel()
		<-p.Done()
		_, err := p.Lease()
		wantErr(t, err, ErrInvalid, "no LockAsync returned it")
	}
}

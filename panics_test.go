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
		time.Sleep(3 * time.Second)
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

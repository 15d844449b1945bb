package locker

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// When Close returns, the observer has been told all and is not called any more.
func TestCloseDeliversEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told, calls atomic.Int32
		b := newBench(t, plain, WithObserver(ObserverFunc(func(e Event) {
			calls.Add(1)
			defer calls.Add(-1)
			sleep(t.Context(), nil, 10*time.Millisecond)
			if e.Kind == EventLost {
				told.Add(1)
			}
		})))
		for _, key := range []string{"a", "b", "c"} {
			b.lock(t.Context(), key)
		}
		_ = b.Close()
		if told.Load() != 3 || calls.Load() != 0 {
			t.Errorf("%d losses told and %d calls running when Close returns, want 3 and 0: nothing of the Locker runs", told.Load(), calls.Load())
		}
	})
}

// Close waits for the commands that it cuts short: the driver is not closed under
// them, and nothing runs when it returns.
func TestCloseWaitsForWhatItEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, plain)
		b.store.from(opAcquire, hang)
		b.store.from(opRelease, deaf(50*time.Millisecond)) // as a driver may, well within Close's 5s
		_ = b.locking(t.Context(), "k", WithWait(time.Second))
		_ = b.Close()
		if b.at() > 5*time.Second {
			t.Errorf("Close took %v, want 5s at most", b.at())
		}
		b.work.mu.Lock()
		n := b.work.running
		b.work.mu.Unlock()
		if n != 0 {
			t.Errorf("%d pieces of work go on when Close returns, want none", n)
		}
		b.until(10 * time.Second)
	})
}

// A TryLock that Close ends says so, also when it re-enters.
func TestCloseEndsReenteringTryLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, counting)
		ctx := ContextWithOwner(t.Context(), "ann")
		b.lock(ctx, "k")
		b.store.from(opSetHolds, hang)
		trying := b.begin(func() (*Lease, error) { return b.TryLock(ctx, "k") })
		_ = b.Close()
		<-trying.done
		wantErr(t, trying.err, ErrClosed, "Close ended it")
	})
}

package locker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/distlock/locker/driver"
)

// sameStripe is another key in the stripe of key.
func (b *bench) sameStripe(key string) string {
	for i := 0; ; i++ {
		if k := fmt.Sprint("s", i); b.stripeOf(k) == b.stripeOf(key) {
			return k
		}
	}
}

// However often Unlock is called while the store is away, the release goes on once, and
// the grant ends with one event.
func TestRepeatedUnlocksEndOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, plain, WithTTL(time.Second))
		l := b.lock(t.Context(), "k")
		b.store.from(opRelease, fail(errRefused))
		for range 50 {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
			wantErr(t, l.Unlock(ctx), ErrUnavailable, "the store refuses")
			cancel()
		}
		if n := b.background.Len(); n > 1 {
			t.Errorf("%d releases wait in the background, want 1", n)
		}
		b.until(20 * time.Second)
		b.wantEvents(map[EventKind]int{EventAcquired: 1, EventReleaseFailed: 1}, "one end")
	})
}

// The number of dropped events is told with the next event, whatever is logged before it.
func TestDroppedIsToldWithAnEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate, total := make(chan struct{}), 0
		var once sync.Once
		q := notices{handler: slog.DiscardHandler, observer: ObserverFunc(func(_ context.Context, e Event) {
			once.Do(func() { <-gate })
			total += e.Dropped
		})}
		q.event(t.Context(), Event{})
		synctest.Wait()
		for range maxNotices + 100 {
			q.event(t.Context(), Event{})
		}
		close(gate)
		synctest.Wait()
		q.logger().Info("of a driver's")
		synctest.Wait()
		q.event(t.Context(), Event{})
		synctest.Wait()
		if total != 100 {
			t.Errorf("Dropped says %d, want 100", total)
		}
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

// A lease is not handed out when its end has come already.
func TestGrantIsNotOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, plain, WithTTL(time.Second))
		b.store.next(opAcquire, replyAfter(900*time.Millisecond))
		l, err := b.Lock(t.Context(), "k", WithMaxHold(50*time.Millisecond))
		if err == nil && errors.Is(l.Err(), ErrLost) {
			t.Errorf("Lock returned a lease that is over: %v", l.Err())
		}
	})
}

// A loss is told before the grant that follows it.
func TestLossIsToldBeforeTheNextGrant(t *testing.T) {
	for range 50 {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t, plain, WithTTL(time.Second))
			l := b.lock(t.Context(), "k")
			next := b.locking(t.Context(), "k")
			b.store.free("k")
			b.store.next(opRenew, fail(ErrLost))
			b.unlock(next.wantLease(t))
			wantErr(t, l.Unlock(t.Context()), ErrLost, "it was denied")
			synctest.Wait()
			b.mu.Lock()
			defer b.mu.Unlock()
			var order []string
			for _, e := range b.seen {
				if e.Kind != EventWaiting {
					order = append(order, fmt.Sprint(e.Kind, " ", e.Token))
				}
			}
			if got := fmt.Sprint(order); got != "[acquired 1 lost 1 acquired 2 released 2]" {
				t.Errorf("events %v, want them in the order in which they happened", got)
			}
		})
	}
}

// However often a count is not answered, one correction of it waits in the background.
func TestCorrectionsDoNotPileUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, counting)
		b.store.from(opSetHolds, fail(errReset))
		l := b.lock(t.Context(), "k")
		_, err := b.Lock(l.Context(t.Context()), "k", WithWait(14*time.Second))
		wantErr(t, err, ErrUnavailable, "the count is not answered")
		b.store.from(opSetHolds, obey)
		sent := len(b.store.sent(opSetHolds))
		b.until(b.at() + 10*time.Second)
		if n := len(b.store.sent(opSetHolds)) - sent; n != 1 {
			t.Errorf("%d corrections sent, want 1", n)
		}
		b.unlock(l)
		b.wantIdle("the lease is unlocked")
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

// A wait that ends in contention is no outage because another caller's release is slow.
func TestSlowReleaseIsNoOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, plain)
		b.store.from(opRelease, delay(290*time.Millisecond, obey))
		l := b.lock(t.Context(), "k")
		waiting := b.locking(t.Context(), "k", WithWait(250*time.Millisecond))
		b.unlocking(t.Context(), l)
		<-waiting.done
		wantErr(t, waiting.err, ErrNotAcquired, "the key was not free in time", ErrUnavailable)
	})
}

// A blocked observer does not silence the logger, nor the other way round.
func TestObserverAndLoggerAreApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		proceed := make(chan struct{})
		defer close(proceed)
		var logged, observed atomic.Int32
		for _, blocked := range []string{"observer", "logger"} {
			b := newBench(t, plain, WithTTL(time.Second), WithoutRenewal(),
				WithObserver(ObserverFunc(func(context.Context, Event) {
					if blocked == "observer" {
						<-proceed
					}
					observed.Add(1)
				})),
				WithLogger(slog.New(userLog{func(slog.Record) {
					if blocked == "logger" {
						<-proceed
					}
					logged.Add(1)
				}})))
			b.lock(t.Context(), "k")
			b.until(time.Second)
		}
		if logged.Load() != 2 || observed.Load() != 2 {
			t.Errorf("%d records and %d events delivered, want 2 of each: a grant and its loss", logged.Load(), observed.Load())
		}
	})
}

// A lease that was lost because renewals failed tells how they failed, and the log is
// told of the first failure only.
func TestLossTellsTheLastFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var warnings atomic.Int32
		b := newBench(t, plain, WithTTL(time.Second), WithLogger(slog.New(userLog{func(r slog.Record) {
			if r.Level == slog.LevelWarn && r.Message != "lock lost" {
				warnings.Add(1)
			}
		}})))
		l := b.lock(t.Context(), "k")
		b.store.from(opRenew, fail(errRefused))
		<-l.Lost()
		wantErr(t, l.Err(), errRefused, "that is why")
		wantErr(t, l.Err(), ErrExpired, "and how")
		synctest.Wait()
		if n := warnings.Load(); n != 1 {
			t.Errorf("%d warnings of renewals, want 1", n)
		}
	})
}

// A release that the store has refused for good does not keep that of a further Unlock
// from going on in the background.
func TestReleaseGoesOnAfterPermanentTrouble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, plain)
		l := b.lock(t.Context(), "k")
		unlock := func(steps ...step) {
			b.store.next(opRelease, steps...)
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			defer cancel()
			wantErr(t, l.Unlock(ctx), ErrUnavailable, "the store cannot be used")
			b.until(b.at() + 2*time.Second)
		}
		unlock(fail(errRefused), fail(errNoPerm)) // the second in the background
		b.wantSent(opRelease, 2, "it was refused for good")
		unlock(fail(errRefused))
		if held := b.store.held("k"); held != "" {
			t.Errorf("%s holds the key, want it free: the second release went on", held)
		}
		b.wantIdle("the release went on")
	})
}

// A semaphore whose permits the store does not answer for tells of the outage, within the
// wait; and what cannot be locked is refused when it is made.
func TestSemaphoreTellsOutages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, plain)
		s, err := NewSemaphore(b.Client, "k", 1)
		if err != nil {
			t.Fatal(err)
		}
		b.store.next(opAcquire, obey, hang) // the gate, and the permit
		_, err = s.Acquire(t.Context(), WithWait(300*time.Millisecond))
		wantErr(t, err, ErrUnavailable, "the store did not answer")
		wantBetween(t, "Acquire took", b.at(), 300*time.Millisecond, 600*time.Millisecond, "the wait")
		for what, err := range map[string]error{
			"no permits":  func() error { _, err := NewSemaphore(b.Client, "k", 0); return err }(),
			"no key":      func() error { _, err := NewSemaphore(b.Client, "", 1); return err }(),
			"no RW key":   func() error { _, err := NewRWLock(b.Client, ""); return err }(),
			"zero permit": func() error { _, err := new(Semaphore).Acquire(t.Context()); return err }(),
			"zero reader": func() error { _, err := new(RWLock).RLock(t.Context()); return err }(),
			"zero writer": func() error { _, err := (*RWLock)(nil).Lock(t.Context()); return err }(),
		} {
			wantErr(t, err, ErrInvalid, what)
		}
	})
}

// LockAll fails as Lock does when its context ends before its first attempts are sent: no
// trouble of the store.
func TestLockAllUnderAContextThatEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, plain)
		ctx, cancel := context.WithCancel(t.Context())
		unsent := func(c *command) error {
			cancel()
			<-c.ctx.Done()
			return &driver.StoreError{Err: c.ctx.Err(), NotApplied: true}
		}
		b.store.next(opAcquire, unsent, unsent)
		_, err := LockAll(ctx, b.Client, []string{"a", "b"})
		wantErr(t, err, ErrNotAcquired, "as Lock")
		wantErr(t, err, context.Canceled, "as Lock")
		if errors.Is(err, ErrUnavailable) {
			t.Errorf("an outage: %v", err)
		}
	})
}

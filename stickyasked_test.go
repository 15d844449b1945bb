package locker

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/distlock/locker/driver"
)

func TestStickyGivesWay(t *testing.T) {
	for name, call := range map[string]struct {
		lock func(l *Client, ctx context.Context) (*Lease, error)
		took time.Duration
	}{
		"Lock":    {func(l *Client, ctx context.Context) (*Lease, error) { return l.Lock(ctx, "k") }, 0},
		"TryLock": {func(l *Client, ctx context.Context) (*Lease, error) { return l.TryLock(ctx, "k") }, askAgain},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSticky(t, time.Second)
				token := s.pair("k")
				l, err := call.lock(s.other, t.Context())
				if err != nil || l.Token() <= token {
					t.Fatalf("%v, token %d after %d", err, l.Token(), token)
				}
				wantBetween(t, "it took", s.at(), call.took, call.took, "the holder gave it up")
				mine := s.locking(t.Context(), "k")
				if err := l.Unlock(t.Context()); err != nil {
					t.Fatal(err)
				}
				s.unlock(mine.wantLease(t))
				s.wantFree("k", "it had to wait for it, and the key cools")
				time.Sleep(coolBusy) // on the bubble's clock: the key has cooled
				s.keep("k")
			})
		})
	}
}

// While processes are refused, the holder's Unlock is a release.
func TestStickyHolderIsAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSticky(t, time.Second)
		l := s.lock(t.Context(), "k")
		synctest.Wait()
		_, err := s.other.TryLock(t.Context(), "k")
		wantErr(t, err, ErrNotAcquired, "it is held")
		wantBetween(t, "it took", s.at(), askAgain, askAgain, "it tried once more")
		s.wantSent(opAcquire, 3, "twice refused")
		synctest.Wait() // it has heard of both
		s.unlock(l)
		s.wantFree("k", "it was asked for")
		s.pair("k")
		s.wantFree("k", "it cools")
	})
}

// A TryLock whose store is slow does not try once more.
func TestStickyTryLockOfASlowStore(t *testing.T) {
	for trip, want := range map[time.Duration]time.Duration{askTrip: 3*askTrip + askAgain, askTrip + 1: askTrip + 1} {
		synctest.Test(t, func(t *testing.T) {
			s := newSticky(t, time.Second)
			l := s.lock(t.Context(), "k")
			synctest.Wait()
			s.store.next(opAcquire, delay(trip, obey), delay(trip, obey))
			_, err := s.other.TryLock(t.Context(), "k")
			wantErr(t, err, ErrNotAcquired, "it is held")
			wantBetween(t, "it took", s.at(), want, want, "of a round trip of "+trip.String())
			s.unlock(l)
		})
	}
}

// A signal that is lost costs the rest of idle; the waiter looks when that is over at the latest.
func TestStickySignalIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSticky(t, 300*time.Millisecond)
		s.keep("k")
		s.ether.mute = true
		l, err := s.other.Lock(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		wantBetween(t, "it took", s.at(), 300*time.Millisecond, 300*time.Millisecond, "idle is over, and the release wakes it")
		_ = l.Unlock(t.Context())
	})
}

// Late and repeated signals take nothing away.
func TestStickyOddSignals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSticky(t, time.Second)
		s.keep("k")
		old := s.inspect("k").ID
		send := func(kind driver.SignalKind, key, id string) {
			t.Helper()
			if err := s.d.Signal(t.Context(), driver.Signal{Kind: kind, Key: key, Claim: id}); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		send('?', "k", old)
		send(driver.SignalWaiting, "k", "0194f2a4-58c1-8d7e-9b1a-5f3c2e1d0a9b:1")
		send(driver.SignalRequest, "another", old)
		if s.store.held("k") == "" {
			t.Error("it is given up for a signal of an unknown kind, or about another lock")
		}
		time.Sleep(coolBusy) // on the bubble's clock: it is kept for a while
		send(driver.SignalWaiting, "k", old)
		s.wantFree("k", "it was asked for")
		l := s.lock(t.Context(), "k")
		for range 3 {
			send(driver.SignalWaiting, "k", old)
			send(driver.SignalWaiting, "unknown", old)
		}
		if l.Err() != nil || closed(l.ReleaseRequested()) {
			t.Errorf("a late signal: %v, want nothing to happen", l.Err())
		}
		s.unlock(l)
		time.Sleep(coolMax) // on the bubble's clock: the key has cooled
		for _, kind := range []driver.SignalKind{driver.SignalRequest, driver.SignalBroken} {
			s.keep("k")
			send(kind, "k", s.inspect("k").ID)
			s.wantFree("k", "nobody has it")
			time.Sleep(coolMax) // on the bubble's clock: the key has cooled
		}
		s.wantSent(opRenew, 0, "nothing was doubted")
		if n := len(s.events()[EventReleaseRequested]); n != 0 {
			t.Errorf("%d events %q, want none: nobody has it", n, EventReleaseRequested)
		}
	})
}

// ForceUnlock of a kept lock: the key is another's then, and the holder's release touches nothing.
func TestStickyIsBroken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSticky(t, time.Second)
		s.keep("k")
		if err := s.other.ForceUnlock(t.Context(), s.inspect("k")); err != nil {
			t.Fatal(err)
		}
		l, err := s.other.Lock(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		_, err = s.TryLock(t.Context(), "k")
		wantErr(t, err, ErrNotAcquired, "another Locker has it")
		if l.Err() != nil || s.store.held("k") != l.Owner() {
			t.Error("the next owner's lock is gone")
		}
		_ = l.Unlock(t.Context())
		if n := len(s.events()[EventLost]); n != 0 {
			t.Errorf("%d events %q, want none: it was released", n, EventLost)
		}
	})
}

// Without signals nothing is kept, and the driver is asked to listen once in a while.
func TestStickyIsDeaf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSticky(t, time.Second)
		s.refuses = errors.New("no connection")
		for range 100 {
			s.pair("k")
			s.wantFree("k", "nobody could ask for it")
			time.Sleep(10 * time.Millisecond) // on the bubble's clock: pairs over a second
		}
		if n := len(s.opens()); n > 2 {
			t.Errorf("Listen was called %d times in a second, want once", n)
		}
		s.ether.mu.Lock()
		s.refuses = nil
		s.ether.mu.Unlock()
		time.Sleep(listenAgain) // on the bubble's clock: it tries to listen again
		s.keep("k")
		s.cut()
		synctest.Wait()
		s.pair("k")
		s.wantFree("k", "signals may be missing")
		time.Sleep(listenAgain) // on the bubble's clock: it tries to listen again
		s.pair("k")
		s.keep("k")
	})
}

// A waiter that polls gets a kept lock two round trips later than a free one: it sets no timer where a round trip is shorter than a
// timer. If the lock is in use, the pauses grow: the waiter sends few commands.
func TestStickyPollerLooksSoon(t *testing.T) {
	for trip, pauses := range map[time.Duration]time.Duration{100 * time.Microsecond: 0, 20 * time.Millisecond: 6 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			s := newSticky(t, time.Second)
			s.keep("k")
			inUse := s.lock(t.Context(), "in use")
			s.store.from(opWatch, fail(errRefused)) // so it polls
			s.store.from(opAcquire, delay(trip, obey))
			s.store.from(opRelease, delay(trip+trip/2, obey))
			start := s.at()
			l, err := s.other.Lock(t.Context(), "k")
			if err != nil {
				t.Fatal(err)
			}
			wantBetween(t, "it took", s.at()-start, 3*trip, 3*trip+pauses, "with a round trip of "+trip.String())
			_ = l.Unlock(t.Context())
			before := len(s.store.sent(opAcquire))
			_, err = s.other.Lock(t.Context(), "in use", WithWait(20*time.Millisecond))
			wantErr(t, err, ErrNotAcquired, "it is in use")
			if n := len(s.store.sent(opAcquire)) - before; n > 25 {
				t.Errorf("a waiter asks %d times in 20 ms", n)
			}
			s.unlock(inUse)
		})
	}
}

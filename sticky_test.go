package locker

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/distlock/locker/driver"
)

// newSticky is newSignalled whose holder keeps locks. Its store reserves tokens.
func newSticky(t *testing.T, idle time.Duration, opts ...Option) *signalled {
	t.Helper()
	s := newSignalled(t, append(opts, WithSticky(idle))...)
	s.store.blocks = true
	return s
}

// pair locks and unlocks, and returns the token.
func (s *signalled) pair(key string, opts ...LockOption) int64 {
	s.t.Helper()
	l := s.lock(s.t.Context(), key, opts...)
	synctest.Wait() // it listens
	s.unlock(l)
	return l.Token()
}

// keep makes the holder keep key.
func (s *signalled) keep(keys ...string) {
	s.t.Helper()
	for _, key := range keys {
		s.pair(key)
		if s.store.held(key) == "" {
			s.t.Fatalf("%q is free at %v, and should be kept", key, s.at())
		}
	}
}

func (s *signalled) wantFree(key, why string) {
	s.t.Helper()
	synctest.Wait()
	if owner := s.store.held(key); owner != "" {
		s.t.Errorf("%q is held at %v, want free: %s", key, s.at(), why)
	}
}

func TestStickyPairsAskNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSticky(t, 100*time.Millisecond)
		last, owners := s.pair("k"), map[string]bool{}
		for i := range 200 {
			l, err := s.Lock(t.Context(), "k")
			if i%2 == 0 {
				s.unlock(l)
				l, err = s.TryLock(t.Context(), "k")
			}
			if err != nil || l.Token() <= last || owners[l.Owner()] || l.Err() != nil {
				t.Fatalf("pair %d: %v, token %d after %d, owner %q", i, err, l.Token(), last, l.Owner())
			}
			if _, err := s.TryLock(t.Context(), "k"); !errors.Is(err, ErrNotAcquired) {
				t.Fatalf("a second owner: %v, want ErrNotAcquired", err)
			}
			last, owners[l.Owner()] = l.Token(), true
			if i == 99 {
				time.Sleep(99 * time.Millisecond) // held for so long, and then unused for less
			}
			s.unlock(l)
		}
		s.wantSent(opAcquire, 2, "one for each 256 tokens")
		s.wantSent(opRelease, 1, "the first block")
		s.until(s.at() + 99*time.Millisecond)
		s.wantSent(opRelease, 1, "it is kept for 100 ms")
		s.until(s.at() + time.Millisecond)
		s.wantFree("k", "it was unused for 100 ms")
		s.until(s.at() + time.Second)
		s.wantIdle("nothing is kept")
		if n := s.listening(); n != 0 {
			t.Errorf("%d listen, want none: nothing is kept", n)
		}
		s.wantSent(opRenew, 0, "a claim is not renewed while nobody has it")
	})
}

// However often it is used, a claim is kept for a second after its grant.
func TestStickyEndsASecondAfterTheGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSticky(t, time.Second, WithoutFencing())
		s.keep("k")
		for s.at() < 990*time.Millisecond {
			time.Sleep(10 * time.Millisecond)
			s.pair("k")
		}
		s.wantSent(opRelease, 0, "it is kept")
		s.until(time.Second)
		s.wantFree("k", "a second is over")
		l := s.lock(t.Context(), "k")
		time.Sleep(time.Second)
		s.unlock(l)
		s.wantFree("k", "it was held for a second")
	})
}

// The first grant is short, and the first renewal makes it a full TTL.
func TestStickyGrantIsShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSticky(t, time.Second)
		l := s.lock(t.Context(), "k")
		if ttl := s.wantSent(opAcquire, 1, "")[0].TTL; ttl != stickyGrant {
			t.Errorf("the grant is for %v, want %v", ttl, stickyGrant)
		}
		s.until(time.Second)
		s.wantSent(opRenew, 0, "half of 3 s is not over")
		s.until(2 * time.Second)
		if ttl := s.wantSent(opRenew, 1, "half of 3 s is over")[0].TTL; ttl != DefaultTTL {
			t.Errorf("it is renewed for %v, want %v", ttl, DefaultTTL)
		}
		s.unlock(l)
	})
}

// A claim whose renewal is due is given up if nobody has it.
func TestStickyIsNotRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSticky(t, time.Second, WithTTL(300*time.Millisecond))
		s.keep("k")
		s.until(110 * time.Millisecond)
		s.wantFree("k", "a renewal would be due")
		s.wantSent(opRenew, 0, "nobody has it")
	})
}

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
				time.Sleep(coolBusy)
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
		time.Sleep(coolBusy)
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
		time.Sleep(coolMax)
		for _, kind := range []driver.SignalKind{driver.SignalRequest, driver.SignalBroken} {
			s.keep("k")
			send(kind, "k", s.inspect("k").ID)
			s.wantFree("k", "nobody has it")
			time.Sleep(coolMax)
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

// Callers whom the kept claim does not suit get the key of their own.
func TestStickyDoesNotSuit(t *testing.T) {
	for name, opt := range map[string]LockOption{
		"TTL": WithTTL(time.Minute), "renewals": WithMaxRenewals(3), "none": WithoutRenewal(), "margin": WithMargin(time.Second), "owner": nil,
	} {
		for _, try := range []bool{false, true} {
			t.Run(fmt.Sprint(name, try), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := newSticky(t, time.Second)
					s.keep("k")
					s.store.next(opRelease, delay(5*time.Millisecond, obey))
					ctx, opts := t.Context(), []LockOption{opt}
					if opt == nil {
						ctx, opts = ContextWithOwner(ctx, "me"), nil
					}
					lock := s.Lock
					if try {
						lock = s.TryLock
					}
					l, err := lock(ctx, "k", opts...)
					if err != nil {
						t.Fatalf("%v, want a lease", err)
					}
					s.wantSent(opAcquire, 2, "a claim of its own")
					s.unlock(l)
					if name == "margin" || name == "TTL" {
						return // it is kept as well
					}
					s.wantFree("k", "it is not kept")
				})
			})
		}
	}
}

// A release that is late holds callers up for 300 ms.
func TestStickyReleaseIsLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSticky(t, 100*time.Millisecond)
		s.keep("k")
		s.store.next(opRelease, delay(time.Second, obey))
		s.until(150 * time.Millisecond)
		tried := s.begin(func() (*Lease, error) { return s.TryLock(t.Context(), "k") })
		l := s.locking(t.Context(), "k")
		<-tried.done
		wantErr(t, tried.err, ErrNotAcquired, "the Lock was first")
		s.unlock(l.wantLease(t))
		l.wantEnd(t, 1100*time.Millisecond, 1200*time.Millisecond, "the store had it until then")
	})
}

func TestStickyClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSticky(t, time.Second)
		s.keep("a", "b", "c")
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		wantBetween(t, "Close took", s.at(), 0, 0, "it releases what nobody has")
		for _, key := range []string{"a", "b", "c"} {
			s.wantFree(key, "the Locker is closed")
		}
	})
}

// A part of the table keeps 64 claims, and gives up the longest unused.
func TestStickyKeepsSoMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSticky(t, time.Second)
		var keys []string
		for i := 0; len(keys) < keptMost+3; i++ {
			if k := fmt.Sprint("k", i); s.stripeOf(k) == s.stripeOf("k0") {
				keys = append(keys, k)
			}
		}
		for _, k := range keys[:keptMost] {
			s.keep(k)
		}
		s.keep(keys[1]) // used again
		s.keep(keys[keptMost:]...)
		for i, k := range keys {
			synctest.Wait()
			if held, want := s.store.held(k) != "", i == 1 || i > 3; held != want {
				t.Errorf("key %d is kept: %v, want %v", i, held, want)
			}
		}
		s.until(1100 * time.Millisecond)
		s.wantIdle("all are given up")
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
			time.Sleep(10 * time.Millisecond)
		}
		if n := len(s.opens()); n > 2 {
			t.Errorf("Listen was called %d times in a second, want once", n)
		}
		s.ether.mu.Lock()
		s.refuses = nil
		s.ether.mu.Unlock()
		time.Sleep(listenAgain)
		s.keep("k")
		s.cut()
		synctest.Wait()
		s.pair("k")
		s.wantFree("k", "signals may be missing")
		time.Sleep(listenAgain)
		s.pair("k")
		s.keep("k")
	})
}

// While no other process asks, goroutines of one pass the lock on for as long as it is kept.
func TestStickyHandsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSticky(t, time.Second, WithHandOver(1, time.Millisecond))
		s.keep("k")
		l := s.lock(t.Context(), "k")
		var waiting []*locking
		for range 20 {
			waiting = append(waiting, s.locking(t.Context(), "k"))
		}
		for _, w := range waiting {
			time.Sleep(10 * time.Millisecond)
			s.unlock(l)
			next := w.wantLease(t)
			if next.Token() != l.Token()+1 {
				t.Fatalf("token %d after %d", next.Token(), l.Token())
			}
			l = next
		}
		s.wantSent(opAcquire, 1, "no other process has asked")
		s.unlock(l)
	})
}

func TestStickyEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSticky(t, 100*time.Millisecond)
		s.pair("k")
		s.pair("k")
		time.Sleep(time.Second)
		s.wantEvents(map[EventKind]int{EventAcquired: 2, EventReleased: 2}, "what becomes of a kept lock is no event")
		events := s.events()
		for i, want := range []bool{false, true} {
			if e := events[EventAcquired][i]; e.Kept != want || e.HandOver {
				t.Errorf("Acquired %d: kept %v, handed over %v; want %v, false", i, e.Kept, e.HandOver, want)
			}
			if e := events[EventReleased][i]; !e.Kept || e.HandOver {
				t.Errorf("Released %d: kept %v, handed over %v; want true, false", i, e.Kept, e.HandOver)
			}
		}
	})
}

func TestStickyIsRefused(t *testing.T) {
	for _, idle := range []time.Duration{-1, 0, time.Millisecond - 1, time.Second + 1} {
		_, err := New(signalling{breaking: breaking{fake: newFake()}, ether: new(ether)}, WithSticky(idle))
		wantErr(t, err, ErrInvalid, fmt.Sprint("idle is ", idle))
	}
	_, err := New(newFake(), WithSticky(time.Second))
	wantErr(t, err, ErrInvalid, "the driver has no signals")
}

// The mark of a claim that may be unused is no metadata of a user's.
func TestStickyMark(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, opts := range map[string][]Option{"": nil, "x": {WithMetadata("sticky", "x")}} {
			s := newSticky(t, time.Second, opts...)
			l := s.lock(t.Context(), "k")
			if !driver.MayBeUnused(s.inspect("k").ID) || s.inspect("k").Metadata["sticky"] != name || len(opts) == 0 && s.inspect("k").Metadata != nil {
				t.Errorf("the id %q has metadata %v, want sticky=%q", s.inspect("k").ID, s.inspect("k").Metadata, name)
			}
			s.unlock(l)
		}
		s := newSignalled(t, WithMetadata("a", "sticky"))
		l := s.lock(t.Context(), "k")
		if driver.MayBeUnused(s.inspect("k").ID) {
			t.Errorf("the id %q has the mark, and its Locker keeps nothing", s.inspect("k").ID)
		}
		s.unlock(l)
	})
}

// A process that stood still gives up what it should have given up meanwhile, before its timers have fired.
func TestStickyIsNotTakenLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSticky(t, time.Second)
		s.keep("k")
		stripe := s.stripeOf("k")
		stripe.mu.Lock()
		stripe.keys["k"].current.stick().idle = s.sched.Now() // and the Scheduler has not looked
		stripe.mu.Unlock()
		s.unlock(s.lock(t.Context(), "k"))
		s.wantSent(opAcquire, 2, "the claim was kept for long enough")
	})
}

package locker

import (
	"errors"
	"fmt"
	"slices"
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
		for i := range 800 {
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
		s.wantSent(opAcquire, 2, "one for each 1,024 tokens")
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
			time.Sleep(10 * time.Millisecond) // the pace of use, on the bubble's clock
			s.pair("k")
		}
		s.wantSent(opRelease, 0, "it is kept")
		s.until(time.Second)
		s.wantFree("k", "a second is over")
		l := s.lock(t.Context(), "k")
		time.Sleep(time.Second) // the lease is held for so long, on the bubble's clock
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
			time.Sleep(10 * time.Millisecond) // each holds for so long, on the bubble's clock
			s.unlock(l)
			next := w.wantLease(t)
			if next.Token() != l.Token()+1 {
				t.Fatalf("token %d after %d", next.Token(), l.Token())
			}
			l = next
		}
		s.wantSent(opAcquire, 1, "no other process has asked")
		s.unlock(l)
		events, handed := s.events(), 0
		for _, e := range slices.Concat(events[EventAcquired], events[EventReleased]) {
			if e.HandOver {
				handed++
			}
			if e.HandOver && e.Kept {
				t.Errorf("%q: handed over, and kept; want one of both", e.Kind)
			}
		}
		if handed != 2*len(waiting) {
			t.Errorf("%d events of hand-overs, want two for each of %d", handed, len(waiting))
		}
	})
}

func TestStickyEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSticky(t, 100*time.Millisecond)
		s.pair("k")
		s.pair("k")
		time.Sleep(time.Second) // the kept lock ends, on the bubble's clock, without an event
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

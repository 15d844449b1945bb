package locker

import (
	"bytes"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/distlock/locker/driver"
)

// wantKept wants these keys, which are of one stripe, to be kept, the longest unused first.
func (s *signalled) wantKept(keys ...string) {
	s.t.Helper()
	synctest.Wait()
	stripe := s.stripeOf(keys[0])
	stripe.mu.Lock()
	defer stripe.mu.Unlock()
	var up, down []string
	for c := stripe.oldest; c != nil && len(up) < 99; c = c.rare.sticky.newer {
		up = append(up, c.Key)
	}
	for c := stripe.newest; c != nil && len(down) < 99; c = c.rare.sticky.older {
		down = append(down, c.Key)
	}
	slices.Reverse(down)
	keys = slices.DeleteFunc(keys, func(key string) bool { return key == "" })
	if !slices.Equal(up, keys) || !slices.Equal(down, keys) || stripe.kept != len(keys) {
		s.t.Errorf("kept: %q, backwards %q, by count %d; want %q", up, down, stripe.kept, keys)
	}
}

// The events of a claim while it was held decide whether it is kept.
func TestStickyIsInDoubt(t *testing.T) {
	for name, c := range map[string]struct {
		renew  step
		unlock time.Duration
		broken int // signals that the lock is broken
	}{
		"a renewal is under way":   {delay(20*time.Millisecond, obey), 110 * time.Millisecond, 0},
		"the last renewal failed":  {fail(errReset), 105 * time.Millisecond, 0},
		"the store is to be asked": {obey, 0, 2}, // it was asked after the first signal, and is a second after that
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSticky(t, time.Second, WithTTL(300*time.Millisecond))
				s.store.next(opRenew, c.renew)
				l := s.lock(t.Context(), "k")
				synctest.Wait()
				for range c.broken {
					if err := s.d.Signal(t.Context(), driver.Signal{Kind: driver.SignalBroken, Key: "k", Claim: s.inspect("k").ID}); err != nil {
						t.Fatal(err)
					}
					synctest.Wait()
				}
				s.until(c.unlock)
				s.unlock(l)
				s.wantFree("k", name)
			})
		})
	}
}

// A kept claim that is lost is not counted among those that are kept.
func TestStickyIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSticky(t, time.Second)
		other := s.sameStripe("k")
		l := s.lock(t.Context(), "k")
		synctest.Wait()
		s.store.next(opRenew, delay(10*time.Millisecond, obey))
		renewing := s.begin(func() (*Lease, error) { return nil, l.Renew(t.Context()) })
		s.unlock(l)
		s.keep(other)
		s.wantKept("k", other)
		s.store.free("k")
		<-renewing.done
		s.wantKept(other)
		s.unlock(s.lock(t.Context(), "k"))
		s.wantKept(other, "k")
	})
}

// The order of the kept claims holds when one is used again.
func TestStickyOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSticky(t, time.Second)
		var keys []string
		for i := 0; len(keys) < 3; i++ {
			if k := fmt.Sprint("k", i); s.stripeOf(k) == s.stripeOf("k0") {
				keys = append(keys, k)
			}
		}
		a, b, c := keys[0], keys[1], keys[2]
		s.keep(a, b, c)
		s.wantKept(a, b, c)
		s.keep(a)
		s.wantKept(b, c, a)
		l := s.lock(t.Context(), a)
		s.wantKept(b, c)
		s.keep(b)
		s.wantKept(c, b)
		s.unlock(l)
		s.wantKept(c, b, a)
	})
}

// A claim that a waiter of this process does not want is released by the Unlock, which returns what it found.
func TestStickyWaiterWantsAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSticky(t, time.Second)
		l := s.lock(t.Context(), "k")
		waiter := s.locking(t.Context(), "k", WithTTL(time.Minute))
		s.store.free("k")
		wantErr(t, l.Unlock(t.Context()), ErrLost, "it was lost, and not handed over")
		s.unlock(waiter.wantLease(t))
		s.wantSent(opAcquire, 2, "the waiter has a claim of its own")
	})
}

// While an answer for another call is on its way, nothing is kept or handed over: the Unlock is a release.
func TestStickyCallIsUnderWay(t *testing.T) {
	for name, watch := range map[string]bool{"an attempt": false, "a watch": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSticky(t, time.Second)
				s.keep("another") // it listens
				s.store.next(opAcquire, replyAfter(350*time.Millisecond))
				if watch {
					s.store.next(opWatch, delay(500*time.Millisecond, obey))
				} else {
					s.store.next(opAcquire, delay(500*time.Millisecond, obey))
				}
				first, second := s.locking(t.Context(), "k"), s.locking(t.Context(), "k")
				s.unlock(first.wantLease(t)) // at 350 ms, and the second has asked since 300 ms
				wantBetween(t, "unlocked at", s.at(), 350*time.Millisecond, 350*time.Millisecond, "that is when the answer came")
				s.wantFree("k", "the second call could not take it now")
				s.unlock(second.wantLease(t))
			})
		})
	}
}

// A claim that a call had to wait for is not kept, though nobody has asked for it.
func TestStickyAfterAWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSticky(t, time.Second)
		s.keep("another") // it listens
		theirs, err := s.other.Lock(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		mine := s.locking(t.Context(), "k")
		if err := theirs.Unlock(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.unlock(mine.wantLease(t))
		s.wantFree("k", "the call had to wait for it")
	})
}

// Leases on one grant are no more than it has tokens for, handed over or kept.
func TestStickyTokensRunOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSticky(t, time.Second)
		for range stickyTokens - 1 {
			s.pair("k")
		}
		l := s.lock(t.Context(), "k")
		s.wantSent(opAcquire, 1, "the last token of the grant")
		waiter := s.locking(t.Context(), "k")
		s.unlock(l)
		next := waiter.wantLease(t)
		s.wantSent(opAcquire, 2, "the grant has no token left")
		s.unlock(next)
	})
}

// Where the store lets in whoever names the owner, each lease has an owner that the store does not know.
func TestStickyOwnerIsUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSticky(t, time.Second)
		s.store.t.Joins = true
		l, err := New(struct {
			signalling
			fakeCounter
		}{s.d, fakeCounter{s.store}}, WithSticky(time.Second), WithoutHandOver())
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		lease, err := l.Lock(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		if lease.Owner() == s.inspect("k").Owner {
			t.Errorf("the store knows the owner %q: another process could share a lock that has passed to the next caller", lease.Owner())
		}
		if err := lease.Unlock(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}

// A grant by another's release is not kept: others wait there.
func TestStickyGrantByARelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSticky(t, time.Second)
		s.keep("another") // it listens
		s.store.next(opAcquire, func(c *command) error {
			req := c.Request
			req.ID = strings.Replace(req.ID, driver.MetadataMark, "0"+driver.MetadataMark, 1) // an earlier one
			req.Owner = req.ID
			c.f.locked(func() { c.answer = c.f.t.Acquire(req) })
			c.answer.Claim, c.answer.Since = req.ID, time.Now()
			return nil
		})
		l, err := s.Lock(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		s.unlock(l)
		s.wantFree("k", "another's release has granted it")
	})
}

// A key whose claim was asked for before it was of use cools for twice as long each time, up to a bound.
func TestStickyCools(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSticky(t, time.Second)
		s.keep("k")
		ask := func(pause time.Duration) {
			t.Helper()
			if err := s.d.Signal(t.Context(), driver.Signal{Kind: driver.SignalWaiting, Key: "k", Claim: s.inspect("k").ID}); err != nil {
				t.Fatal(err)
			}
			s.wantFree("k", "it was asked for")
			time.Sleep(pause - time.Millisecond) // on the bubble's clock: almost cooled
			s.pair("k")
			s.wantFree("k", fmt.Sprintf("it cools for %v", pause))
			time.Sleep(time.Millisecond) // on the bubble's clock: the rest
			s.keep("k")
		}
		for pause := coolMin; pause < coolMax; pause *= 2 {
			ask(pause)
		}
		ask(coolMax)
		ask(coolMax)
		s.keep("k") // used once
		ask(coolMax)
		s.keep("k", "k") // used twice
		ask(coolMin)
	})
}

// A signal about an earlier claim of the key does not take the present one.
func TestStickySignalIsAboutAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSticky(t, 100*time.Millisecond)
		s.keep("k")
		old := s.inspect("k").ID
		time.Sleep(time.Second) // on the bubble's clock: longer than a lock is kept
		s.keep("k")
		if err := s.d.Signal(t.Context(), driver.Signal{Kind: driver.SignalWaiting, Key: "k", Claim: old}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if s.store.held("k") == "" {
			t.Error("the claim is given up, and somebody has asked for an earlier one")
		}
	})
}

// Close waits for a claim that is being given up: its release has not begun.
func TestStickyCloseWhileGivingUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSticky(t, time.Second)
		l, err := New(struct {
			signalling
			fakeSharder
		}{s.d, fakeSharder{s.store}}, WithSticky(time.Second))
		if err != nil {
			t.Fatal(err)
		}
		s.Client = l
		s.keep("k")
		var called atomic.Bool
		proceed := make(chan struct{})
		s.store.called = func() {
			if !called.Swap(true) { // to ask for the shard of the release
				<-proceed
			}
		}
		unsuited := s.locking(t.Context(), "k", WithTTL(time.Minute))
		time.AfterFunc(time.Second, func() { close(proceed) })
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		<-unsuited.done
		wantErr(t, unsuited.err, ErrClosed, "the Locker is closed")
		s.wantFree("k", "nobody has it")
	})
}

// The release of a lock that nobody has is no event. If it fails, the log says so.
func TestStickyReleaseFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		s := newSticky(t, 100*time.Millisecond, WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
		s.keep("k")
		s.store.from(opRelease, fail(errNoPerm))
		s.until(time.Second)
		s.wantEvents(map[EventKind]int{EventAcquired: 1, EventReleased: 1}, "its Unlock has kept it")
		_ = s.Close()
		synctest.Wait()
		if !strings.Contains(log.String(), "level=WARN") || !strings.Contains(log.String(), "NOPERM") || !strings.Contains(log.String(), "key=k") {
			t.Errorf("the log does not say that the key is left to its TTL, and why:\n%s", &log)
		}
	})
}

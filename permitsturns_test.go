package locker

import (
	"bytes"
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/distlock/locker/driver"
)

// few returns the semaphore of n permits on key of another Locker.
func (b *bench) few(key string, n int) *Semaphore {
	b.t.Helper()
	s, err := NewSemaphore(b.beside(), key, n)
	if err != nil {
		b.t.Fatal(err)
	}
	return s
}

// A caller that gives up, or is served by hand-over, leaves no permits that are kept free for it.
func TestNothingIsKeptFreeForNobody(t *testing.T) {
	for name, end := range map[string]func(b *bench, s *Semaphore, held *Lease){
		"its context ends": func(b *bench, s *Semaphore, _ *Lease) {
			ctx, cancel := context.WithCancel(b.t.Context())
			big := b.begin(func() (*Lease, error) { return s.AcquireN(ctx, 4) })
			cancel()
			<-big.done
		},
		"its wait is over": func(b *bench, s *Semaphore, _ *Lease) {
			_, err := s.AcquireN(b.t.Context(), 4, WithWait(time.Second))
			wantErr(b.t, err, ErrNotAcquired, "permits are out")
		},
		"its reply is lost": func(b *bench, s *Semaphore, _ *Lease) {
			b.store.next(opAcquire, loseReply)
			_, err := s.AcquireN(b.t.Context(), 4, WithWait(100*time.Millisecond))
			wantErr(b.t, err, ErrNotAcquired, "permits are out")
		},
		"it is handed permits": func(b *bench, s *Semaphore, held *Lease) {
			big := b.begin(func() (*Lease, error) { return s.AcquireN(b.t.Context(), 3) })
			b.unlock(held)
			big.wantLease(b.t)
		},
		"its Locker is closed": func(b *bench, s *Semaphore, held *Lease) {
			b.begin(func() (*Lease, error) { return s.AcquireN(b.t.Context(), 4) })
			_ = b.Close()
			b.unlock(held)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, permitting, WithoutFencing()) // so that permits are handed over
				few, s := b.few("k", 4), newSemaphore(t, b, "k", 4)
				held := must(s.AcquireN(t.Context(), 3))(t)
				end(b, s, held)
				synctest.Wait()
				b.unlock(must(few.TryAcquire(t.Context()))(t))
			})
		})
	}
}

// Callers with different weights are served in their order, whatever the store has left.
func TestWeightsKeepTheirOrder(t *testing.T) {
	for name, out := range map[string]int{"the store has refused nobody": 0, "the store has 2 left": 1} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, permitting)
				b.store.from(opAcquire, replyAfter(10*time.Millisecond))
				few, s := b.few("k", 4), newSemaphore(t, b, "k", 4)
				held := must(few.AcquireN(t.Context(), 2-out))(t)
				if out > 0 {
					must(s.AcquireN(t.Context(), out))(t)
				}
				big := b.begin(func() (*Lease, error) { return s.AcquireN(t.Context(), 3) })
				small := b.begin(func() (*Lease, error) { return s.Acquire(t.Context()) })
				b.until(b.at() + 5*time.Second)
				if big.over() || small.over() {
					t.Fatalf("the first is over: %v, the second, which asks for less: %v, want neither", big.over(), small.over())
				}
				b.unlock(held)
				b.unlock(big.wantLease(t))
				b.unlock(small.wantLease(t))
				if big.end > small.end {
					t.Errorf("the first was served at %v, the second at %v", big.end, small.end)
				}
			})
		})
	}
}

// A plain Lock that waits for the permits of its key is not passed.
func TestPermitsBehindALock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, permitting)
		b.store.from(opAcquire, replyAfter(10*time.Millisecond))
		held := must(b.few("k", 4).Acquire(t.Context()))(t)
		lock := b.locking(t.Context(), "k")
		permit := b.begin(func() (*Lease, error) { return newSemaphore(t, b, "k", 4).Acquire(t.Context()) })
		b.until(b.at() + 5*time.Second)
		if permit.over() {
			t.Fatal("a permit was granted past a Lock that waits")
		}
		b.unlock(held)
		b.unlock(lock.wantLease(t))
		b.unlock(permit.wantLease(t))
	})
}

// Once the store has refused, one waiter of a Locker asks, also where the Locker has no permits itself.
func TestRefusedWaitersAskInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, permitting)
		held := must(b.few("k", 2).AcquireN(t.Context(), 2))(t)
		s := newSemaphore(t, b, "k", 2)
		var calls []*locking
		for range 20 {
			calls = append(calls, b.begin(func() (*Lease, error) { return s.Acquire(t.Context()) }))
		}
		if n := len(b.events()[EventWaiting]); n != len(calls) {
			t.Errorf("%d events of callers that wait, want %d: the permits are taken", n, len(calls))
		}
		b.store.from(opAcquire, replyAfter(10*time.Millisecond))
		before := len(b.store.sent(opAcquire))
		b.until(b.at() + 10*time.Second)
		if n := len(b.store.sent(opAcquire)) - before; n > 14 {
			t.Errorf("%d attempts in 10 s, want about one a second", n)
		}
		if _, err := s.TryAcquire(t.Context()); err == nil || len(b.store.sent(opAcquire))-before > 14 {
			t.Errorf("TryAcquire: %v, want ErrNotAcquired without a command", err)
		}
		b.unlock(held)
		for _, c := range calls {
			b.unlock(c.wantLease(t))
		}
	})
}

// Waiters are reported to wait as soon as the permits are known to be taken, also behind one that asks.
func TestWaitersForPermitsAreReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, permitting)
		b.store.from(opAcquire, replyAfter(10*time.Millisecond))
		s := newSemaphore(t, b, "k", 1)
		calls := []*locking{}
		for range 3 { // the first is granted, the second asks, the third waits behind it
			calls = append(calls, b.begin(func() (*Lease, error) { return s.Acquire(t.Context()) }))
		}
		b.until(b.at() + 15*time.Millisecond) // the second is asking still
		last := b.begin(func() (*Lease, error) { return s.Acquire(t.Context()) })
		b.until(b.at() + 100*time.Millisecond)
		for _, c := range append(calls, last) {
			b.unlock(c.wantLease(t))
		}
		if n := len(b.events()[EventWaiting]); n != 3 {
			t.Errorf("%d events of callers that wait, want 3", n)
		}
	})
}

// A grant leaves room for as many attempts as there are permits left, weights counted.
func TestRoomForAttempts(t *testing.T) {
	c := &claim{Claim: driver.Claim{Permits: 2, Limit: 1000}}
	for free, want := range map[int]queue{0: {room: 1, full: true}, 1: {room: 1, full: true}, 2: {room: 1}, 10: {room: 5}, 900: {room: mostRoom}} {
		ks := &keyState{queue: &queue{}}
		if ks.hold(c, free, nil); ks.room != want.room || ks.full != want.full {
			t.Errorf("with %d left: room for %d, full %v; want %d, %v", free, ks.room, ks.full, want.room, want.full)
		}
	}
}

// A writer whose grant is answered late, after the store has lost it and granted others, ends nobody's lease.
func TestLateGrantOfAllPermits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, permitting)
		rw := newRW(t, b)
		b.store.next(opAcquire, replyAfter(400*time.Millisecond))
		writer := b.begin(func() (*Lease, error) { return rw.Lock(t.Context()) })
		b.store.free("k")
		reader := b.begin(func() (*Lease, error) { return rw.RLock(t.Context()) }).wantLease(t)
		b.until(b.at() + time.Second)
		if writer.over() || reader.Err() != nil {
			t.Fatalf("the writer is inside: %v; the reader's lease: %v", writer.over(), reader.Err())
		}
		b.unlock(reader)
		b.unlock(writer.wantLease(t))
	})
}

// A caller that tries is not refused because others of its Locker are asking.
func TestTryBesideOthersThatAsk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, permitting)
		s := newSemaphore(t, b, "k", 2)
		b.store.next(opAcquire, replyAfter(10*time.Millisecond))
		one := b.begin(func() (*Lease, error) { return s.Acquire(t.Context()) })
		b.unlock(must(s.TryAcquire(t.Context()))(t))
		b.unlock(one.wantLease(t))
	})
}

// Permits are not handed to a caller past the number that it names.
func TestPermitsAreHandedWithinTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, permitting, WithoutFencing())
		five, three := newSemaphore(t, b, "k", 5), newSemaphore(t, b, "k", 3)
		must(five.AcquireN(t.Context(), 4))(t)
		held := must(five.Acquire(t.Context()))(t)
		next := b.begin(func() (*Lease, error) { return three.Acquire(t.Context()) })
		b.unlock(held)
		b.until(b.at() + 5*time.Second)
		if next.over() {
			t.Error("a caller that names 3 was let in beside 4 that are out")
		}
	})
}

// Permits that were given to a caller whose attempt hangs come back to the store, for other processes, and by Close.
func TestGivenPermitsComeBack(t *testing.T) {
	for name, closes := range map[string]bool{"the attempt hangs": false, "the Locker is closed": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, permitting, WithoutFencing())
				few, s := b.few("k", 1), newSemaphore(t, b, "k", 1)
				held := must(s.Acquire(t.Context()))(t)
				b.store.next(opAcquire, hang)
				b.begin(func() (*Lease, error) { return s.Acquire(t.Context(), WithWait(time.Minute)) })
				b.unlock(held)
				b.wantSent(opRelease, 0, "it is given to the next")
				other := b.begin(func() (*Lease, error) { return few.Acquire(t.Context()) })
				start := b.at()
				if closes {
					_ = b.Close()
				}
				l := other.wantLease(t)
				wantBetween(t, "the other process waited", other.end-start, 0, 2*overdueAfter, "nobody uses the permit")
				synctest.Wait()
				released := slices.DeleteFunc(b.store.sent(opRelease), func(c command) bool { return c.ID != held.Owner() })
				if len(released) != 1 {
					t.Errorf("%d releases of the permit, want 1", len(released))
				}
				if n := len(b.events()[EventLost]); n != 0 {
					t.Errorf("%d leases were lost", n)
				}
				b.unlock(l)
			})
		})
	}
}

// Each of several callers whose attempts hang passes on the permits that it was given.
func TestAllGivenPermitsComeBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 3
		b := newBench(t, permitting, WithoutFencing())
		few, s := b.few("k", n), newSemaphore(t, b, "k", n)
		var held []*Lease
		for range n {
			held = append(held, must(s.Acquire(t.Context()))(t))
		}
		for range n {
			b.store.next(opAcquire, hang)
			b.begin(func() (*Lease, error) { return s.Acquire(t.Context(), WithWait(time.Minute)) })
		}
		for _, l := range held {
			b.unlock(l)
		}
		b.wantSent(opRelease, 0, "each is given to the next")
		start := b.at()
		for range n {
			other := b.begin(func() (*Lease, error) { return few.Acquire(t.Context(), WithWait(time.Minute)) })
			other.wantLease(t)
			wantBetween(t, "the other process waited", other.end-start, 0, 2*overdueAfter, "nobody uses the permits")
		}
	})
}

// A caller that the store grants what was kept free for it sends nothing more about that.
func TestGrantEndsTheBid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, permitting)
		held := must(b.few("k", 4).Acquire(t.Context()))(t)
		s := newSemaphore(t, b, "k", 4)
		big := b.begin(func() (*Lease, error) { return s.AcquireN(t.Context(), 4) })
		b.unlock(held)
		big.wantLease(t)
		b.until(b.at() + 5*time.Second)
		b.wantSent(opRelease, 1, "that of the holder")
	})
}

// Permits that are given to a caller do not lie idle until its Locker watches the key.
func TestGivenPermitsDoNotWaitForAWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, permitting, WithoutFencing())
		b.store.from(opWatch, hang)
		s := newSemaphore(t, b, "k", 1)
		held := must(s.Acquire(t.Context()))(t)
		b.store.next(opAcquire, replyAfter(10*time.Millisecond))
		next := b.begin(func() (*Lease, error) { return s.Acquire(t.Context()) })
		start := b.at()
		b.unlock(held)
		b.unlock(next.wantLease(t))
		wantBetween(t, "served after", next.end-start, 0, 20*time.Millisecond, "an attempt")
	})
}

// Each number that another process names is logged once, in whatever order they come.
func TestLimitsAreLoggedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		b := newBench(t, permitting, WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
		s := newSemaphore(t, b, "k", 5)
		for _, n := range []int{3, 4, 3, 4, 5, 3} {
			other := must(b.few("k", n).Acquire(t.Context()))(t)
			b.unlock(must(s.Acquire(t.Context()))(t))
			b.unlock(other)
		}
		_ = b.Close()
		synctest.Wait()
		if n := strings.Count(log.String(), "different numbers"); n != 2 {
			t.Errorf("%d warnings, want one of 3 and one of 4:\n%s", n, &log)
		}
	})
}

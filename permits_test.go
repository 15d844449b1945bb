package locker

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// Callers of free permits cost a command and an event each, and a round trip in all.
func TestFreePermitsAreCheap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const callers, trip = 400, 10 * time.Millisecond
		b := newBench(t, permitting)
		s := newSemaphore(t, b, "k", 500)
		b.store.from(opAcquire, replyAfter(trip))
		var wg sync.WaitGroup
		for range callers {
			wg.Go(func() { must(s.Acquire(t.Context()))(t) })
		}
		wg.Wait()
		b.wantSent(opAcquire, callers, "one a caller")
		b.wantEvents(map[EventKind]int{EventAcquired: callers}, "one a caller")
		if n := len(b.events()[EventWaiting]); n != 0 {
			t.Errorf("%d events of callers that wait, want none", n)
		}
		wantBetween(t, "all took", b.at(), trip, 4*trip, "they do not queue for their turn to ask")
		if n := b.store.atOnce(opAcquire); n <= firstRoom || n > mostRoom {
			t.Errorf("%d attempts at once, want more than %d, and at most %d", n, firstRoom, mostRoom)
		}
		st := b.Stats()
		if st.Locks != 1 || st.Leases != callers {
			t.Errorf("%+v, want %d leases on a key", st, callers)
		}
	})
}

// While the store refuses, one waiter asks, and those behind it cost nothing.
func TestWaitersForPermitsAskInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, permitting)
		s := newSemaphore(t, b, "k", 2)
		held := must(s.AcquireN(t.Context(), 2))(t)
		var calls []*locking
		for range 50 {
			calls = append(calls, b.begin(func() (*Lease, error) { return s.Acquire(t.Context()) }))
		}
		before := len(b.store.sent(opAcquire))
		b.until(b.at() + 10*time.Second)
		if n := len(b.store.sent(opAcquire)) - before; n > 14 {
			t.Errorf("%d attempts in 10 s, want about one a second", n)
		}
		b.unlock(held)
		for _, c := range calls {
			b.unlock(c.wantLease(t))
		}
		b.wantOut("k", 0)
	})
}

// However many goroutines ask for however many permits, and give up, the count is right.
func TestPermitsAreCounted(t *testing.T) {
	for _, k := range []kind{permitting, permittingCounting} {
		synctest.Test(t, func(t *testing.T) {
			const limit = 5
			b := newBench(t, k)
			b.store.blocks = true // hand-overs
			b.store.from(opAcquire, replyAfter(time.Millisecond))
			s := newSemaphore(t, b, "k", limit)
			var inside, most atomic.Int64
			var wg sync.WaitGroup
			for g := range 24 {
				wg.Go(func() {
					for i := range 30 {
						n := 1 + (g+i)%3
						ctx, cancel := context.WithTimeout(t.Context(), time.Duration(1+(g*i)%40)*time.Millisecond)
						p, err := s.AcquireN(ctx, n)
						cancel()
						if err != nil {
							continue
						}
						most.Store(max(most.Load(), inside.Add(int64(n))))
						time.Sleep(time.Millisecond) // the work inside, on the bubble's clock
						inside.Add(int64(-n))
						if err := p.Unlock(t.Context()); err != nil {
							t.Error(err)
						}
					}
				})
			}
			wg.Wait()
			if most.Load() != limit {
				t.Errorf("%d permits were out at once, want %d at most", most.Load(), limit)
			}
			b.until(b.at() + 5*time.Second)
			b.wantOut("k", 0)
			b.wantIdle("all is given back")
		})
	}
}

// A permit that comes free is given to the caller that has waited longest, without a command.
func TestPermitsAreHandedOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, permitting)
		b.store.blocks = true
		s := newSemaphore(t, b, "k", 2)
		other := must(s.Acquire(t.Context()))(t)
		first := b.begin(func() (*Lease, error) { return s.Acquire(t.Context()) })
		held := first.wantLease(t)
		// Its tokens are one, as nobody waited: the next has some to pass on.
		next := b.begin(func() (*Lease, error) { return s.Acquire(t.Context()) })
		last := b.begin(func() (*Lease, error) { return s.Acquire(t.Context()) })
		b.unlock(held)
		mine := next.wantLease(t)
		sent := len(b.store.sent(opRelease))
		b.unlock(mine)
		given := last.wantLease(t)
		if n := len(b.store.sent(opRelease)); n != sent {
			t.Errorf("%d releases, want %d: it is handed over", n, sent)
		}
		if given.Token() <= mine.Token() || given.Owner() == mine.Owner() {
			t.Errorf("token %d owner %s after %d %s", given.Token(), given.Owner(), mine.Token(), mine.Owner())
		}
		b.unlock(given)
		b.unlock(other)
		b.wantOut("k", 0)
	})
}

// A permit that was given to a caller whose own attempt hangs goes to the next one.
func TestGivenPermitsAreNotStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, permitting, WithHandOver(16, time.Second))
		b.store.blocks = true
		s := newSemaphore(t, b, "k", 1)
		must(s.Acquire(t.Context()))(t) // so that the next waits, and has tokens to pass on
		first := b.begin(func() (*Lease, error) { return s.Acquire(t.Context()) })
		second := b.begin(func() (*Lease, error) { return s.Acquire(t.Context()) })
		third := b.begin(func() (*Lease, error) { return s.Acquire(t.Context()) })
		b.store.free("k")
		held := first.wantLease(t)
		b.store.next(opAcquire, hang)
		b.store.signal("k")
		synctest.Wait() // second asks, and hangs
		start := b.at()
		b.unlock(held)
		l := third.wantLease(t)
		wantBetween(t, "it took", third.end-start, 0, 2*overdueAfter, "the other's answer is late")
		if second.over() {
			t.Error("its attempt hangs")
		}
		b.unlock(l)
		b.unlock(second.wantLease(t))
		b.until(b.at() + 5*time.Second)
		b.wantOut("k", 0)
		b.wantIdle("all is given back")
	})
}

// A call that does not wait passes no waiter of its Locker, also while the grant of an earlier one arrives, which leaves
// permits, but too few for the waiter.
func TestTryDoesNotPassAWaiter(t *testing.T) {
	type acquire func(context.Context, ...LockOption) (*Lease, error)
	for name, open := range map[string]func(*testing.T, *bench) (try, wait acquire){
		"a writer": func(t *testing.T, b *bench) (try, wait acquire) {
			rw := newRW(t, b)
			return rw.TryRLock, rw.Lock
		},
		"many permits": func(t *testing.T, b *bench) (try, wait acquire) {
			s := newSemaphore(t, b, "k", 10)
			return s.TryAcquire, func(ctx context.Context, opts ...LockOption) (*Lease, error) { return s.AcquireN(ctx, 9, opts...) }
		},
		"a plain lock": func(t *testing.T, b *bench) (try, wait acquire) {
			return newSemaphore(t, b, "k", 10).TryAcquire, func(ctx context.Context, opts ...LockOption) (*Lease, error) { return b.Lock(ctx, "k", opts...) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, permitting)
				try, wait := open(t, b)
				first := must(try(t.Context()))(t)
				b.store.next(opAcquire, replyAfter(100*time.Millisecond))
				late := b.begin(func() (*Lease, error) { return try(t.Context()) })
				waiter := b.begin(func() (*Lease, error) { return wait(t.Context(), WithWait(10*time.Second)) }) // is refused
				b.store.next(opAcquire, replyAfter(50*time.Millisecond))                                         // it asks again at 100 ms
				b.until(110 * time.Millisecond)
				b.unlock(late.wantLease(t))
				sent := len(b.store.sent(opAcquire))
				_, err := try(t.Context())
				wantErr(t, err, ErrNotAcquired, "a caller waits")
				b.wantSent(opAcquire, sent, "this Locker knows that")
				b.unlock(first)
				b.unlock(waiter.wantLease(t))
				b.unlock(must(try(t.Context()))(t))
			})
		})
	}
}

package locker

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func newSemaphore(t *testing.T, b *bench, key string, n int) *Semaphore {
	t.Helper()
	s, err := NewSemaphore(b.Client, key, n)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// beside returns another Locker on the store.
func (b *bench) beside() *Client {
	b.t.Helper()
	l, err := New(b.store.as(permitting))
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = l.Close() })
	return l
}

func (b *bench) wantOut(key string, want int) {
	b.t.Helper()
	got := 0
	b.store.locked(func() { got, _, _ = b.store.t.Permits(key) })
	if got != want {
		b.t.Errorf("%d permits are out at %v, want %d", got, b.at(), want)
	}
}

func TestSemaphore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, permitting)
		s := newSemaphore(t, b, "k", 3)
		ctx := t.Context()
		var permits []*Lease
		for range 3 {
			p := must(s.Acquire(ctx))(t)
			permits = append(permits, p)
			ctx = p.Context(ctx) // there is no re-entry
		}
		b.wantSent(opAcquire, 3, "one for a free permit")
		b.wantOut("k", 3)
		_, err := s.TryAcquire(ctx, WithWait(time.Hour))
		wantErr(t, err, ErrNotAcquired, "there are three permits")
		_, err = s.Acquire(ctx, WithWait(time.Second))
		wantErr(t, err, ErrNotAcquired, "there are three permits")

		start := b.at()
		next := b.begin(func() (*Lease, error) { return s.Acquire(t.Context()) })
		later := b.begin(func() (*Lease, error) { return s.Acquire(t.Context()) })
		_, err = s.TryAcquire(ctx)
		wantErr(t, err, ErrNotAcquired, "others wait")
		b.until(start + time.Second)
		b.unlock(permits[1])
		synctest.Wait()
		if later.over() {
			t.Error("the later one was served first, or there are four permits")
		}
		b.unlock(next.wantLease(t))
		b.unlock(later.wantLease(t))
		b.unlock(permits[0])
		b.unlock(permits[2])
		b.until(start + time.Minute)
		b.wantOut("k", 0)
		b.wantIdle("all is given back")
	})
}

// A caller for many is not passed over by those for few behind it, nor is a plain Lock.
func TestBigRequestsAreServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, permitting)
		other := b.beside()
		few, err := NewSemaphore(other, "k", 4)
		if err != nil {
			t.Fatal(err)
		}
		all := newSemaphore(t, b, "k", 4)
		for name, ask := range map[string]func() (*Lease, error){
			"AcquireN": func() (*Lease, error) { return all.AcquireN(t.Context(), 3) },
			"Lock":     func() (*Lease, error) { return b.Lock(t.Context(), "k") },
		} {
			stop := make(chan struct{})
			var wg sync.WaitGroup
			for range 8 {
				wg.Go(func() {
					for {
						select {
						case <-stop:
							return
						default:
						}
						p := must(few.Acquire(t.Context()))(t)
						time.Sleep(7 * time.Millisecond) // the work inside, on the bubble's clock
						_ = p.Unlock(t.Context())
					}
				})
			}
			b.until(b.at() + 100*time.Millisecond)
			start := b.at()
			call := b.begin(ask)
			l := call.wantLease(t)
			wantBetween(t, name+" took", call.end-start, 0, 3*time.Second, "others that came later wait")
			b.unlock(l)
			close(stop)
			wg.Wait()
		}
	})
}

// A key with permits is no lock, and a lock has no permits; a holder that asks for the rest
// fails at once.
func TestPermitsAndLocksExclude(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, permitting)
		s := newSemaphore(t, b, "k", 3)
		p := must(s.Acquire(t.Context()))(t)
		_, err := b.Lock(t.Context(), "k", WithWait(3*time.Second))
		wantErr(t, err, ErrNotAcquired, "a permit is out")
		_, err = b.Lock(p.Context(t.Context()), "k")
		wantErr(t, err, ErrInvalid, "it would wait for itself")
		_, err = b.TryLock(ContextWithOwner(p.Context(t.Context()), "ann"), "k")
		wantErr(t, err, ErrInvalid, "it would wait for itself")
		if n, err := s.Available(t.Context()); n != 2 || err != nil {
			t.Errorf("%d are free, %v, want 2", n, err)
		}
		b.unlock(p)
		b.until(b.at() + 3*time.Second) // a bid ends
		l := b.lock(t.Context(), "k")
		_, err = s.TryAcquire(t.Context())
		wantErr(t, err, ErrNotAcquired, "it is locked")
		_, err = s.Acquire(l.Context(t.Context()))
		wantErr(t, err, ErrInvalid, "it would wait for itself")
		_, err = s.Available(t.Context())
		wantErr(t, err, ErrConflict, "it is locked")
		b.unlock(l)
		b.unlock(must(s.Acquire(t.Context()))(t))
	})
}

// The permits of a dead process are free after their TTL, those that are lost are, and Close ends all.
func TestPermitsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, permitting)
		s := newSemaphore(t, b, "k", 2)
		dead := must(s.AcquireN(t.Context(), 2, WithoutRenewal(), WithTTL(time.Second)))(t)
		next := b.begin(func() (*Lease, error) { return s.Acquire(t.Context(), WithTTL(time.Second)) })
		<-dead.Lost()
		p := next.wantLease(t)
		wantBetween(t, "served at", next.end, time.Second, 1100*time.Millisecond, "the TTL")
		wantErr(t, dead.Unlock(t.Context()), ErrLost, "it has ended")
		kept := must(s.Acquire(t.Context()))(t)
		b.store.free("k")
		b.until(b.at() + time.Second)
		wantErr(t, p.Err(), ErrLost, "the store has lost it")
		_ = b.Close()
		<-kept.Lost()
		wantErr(t, kept.Err(), ErrClosed, "closed")
	})
}

// toldOf reports whether these are the limits of others that were logged.
func (s *Semaphore) toldOf(want ...int) bool {
	var told []int
	s.others.Range(func(limit, _ any) bool {
		told = append(told, limit.(int))
		return true
	})
	return slices.Equal(told, want)
}

// The newest number counts, and no caller gets past its own. Processes that differ are logged once.
func TestLimitsOfProcesses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, permitting)
		five, three := newSemaphore(t, b, "k", 5), newSemaphore(t, b, "k", 3)
		var out []*Lease
		for range 4 {
			out = append(out, must(five.Acquire(t.Context()))(t))
		}
		_, err := three.TryAcquire(t.Context())
		wantErr(t, err, ErrNotAcquired, "four are out")
		if n, err := three.Available(t.Context()); n != 0 || err != nil {
			t.Errorf("%d of 3 are available, %v, want 0 while 4 are out", n, err)
		}
		b.unlock(out[0])
		_, err = three.TryAcquire(t.Context())
		wantErr(t, err, ErrNotAcquired, "three are out")
		if !five.toldOf() || !three.toldOf(5) {
			t.Error("the one with 5 was told of another number, or the one with 3 was not told of 5 alone")
		}
		b.unlock(must(five.TryAcquire(t.Context()))(t))
		b.unlock(must(five.TryAcquire(t.Context()))(t))
		if !five.toldOf(3) {
			t.Error("the one with 5 was not told of 3 alone")
		}
	})
}

func TestSemaphoreRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, permitting)
		s := newSemaphore(t, b, "k", 2)
		unsupported := second(NewSemaphore(newBench(t, plain).Client, "k", 1))
		wantErr(t, unsupported, errors.ErrUnsupported, "a driver without permits")
		for what, err := range map[string]error{
			"a driver without permits": unsupported,
			"no permits":               second(NewSemaphore(b.Client, "k", 0)),
			"many permits":             second(NewSemaphore(b.Client, "k", MaxPermits+1)),
			"no key":                   second(NewSemaphore(b.Client, "", 1)),
			"no ctx":                   second(s.Acquire(noContext)),
			"more than there are":      second(s.AcquireN(t.Context(), 3)),
			"none":                     second(s.AcquireN(t.Context(), 0)),
			"zero":                     second(new(Semaphore).Acquire(t.Context())),
			"zero Available":           second(new(Semaphore).Available(t.Context())),
			"zero Do":                  (*Semaphore)(nil).Do(t.Context(), func(context.Context) error { return nil }),
		} {
			wantErr(t, err, ErrInvalid, what)
		}
	})
}

// An outage is told within the wait.
func TestSemaphoreTellsOutages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, permitting)
		b.store.next(opAcquire, hang)
		_, err := newSemaphore(t, b, "k", 1).Acquire(t.Context(), WithWait(300*time.Millisecond))
		wantErr(t, err, ErrUnavailable, "the store did not answer")
		wantBetween(t, "Acquire took", b.at(), 300*time.Millisecond, 600*time.Millisecond, "the wait")
	})
}

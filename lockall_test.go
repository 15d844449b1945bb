package locker

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/distlock/locker/driver"
)

// lockingAll begins a LockAll, and returns when it waits or is over.
func (b *bench) lockingAll(ctx context.Context, keys []string, opts ...LockOption) (*locking, func() *Leases) {
	var all *Leases
	l := b.begin(func() (_ *Lease, err error) {
		all, err = LockAll(ctx, b.Client, keys, opts...)
		return nil, err
	})
	return l, func() *Leases {
		b.t.Helper()
		l.wantLease(b.t)
		return all
	}
}

func (b *bench) lockAll(ctx context.Context, keys ...string) *Leases {
	b.t.Helper()
	all, err := LockAll(ctx, b.Client, keys)
	if err != nil {
		b.t.Fatalf("LockAll(%q): %v", keys, err)
	}
	return all
}

func (b *bench) wantHeld(want ...string) {
	b.t.Helper()
	synctest.Wait()
	b.store.t.Mu.Lock()
	defer b.store.t.Mu.Unlock()
	got, _ := b.store.t.Matching("*")
	if !slices.Equal(got, want) {
		b.t.Errorf("the store has %q, want %q", got, want)
	}
}

// Free keys are all asked for at the same time, and given back at the same time.
func TestLockAllTakesOneRoundTrip(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, plain)
		b.store.from(opAcquire, replyAfter(20*time.Millisecond))
		b.store.from(opRelease, replyAfter(20*time.Millisecond))
		all := b.lockAll(t.Context(), "b", "a", "c", "a", "b")
		if got := all.Keys(); !slices.Equal(got, []string{"a", "b", "c"}) {
			t.Errorf("the keys are %q", got)
		}
		wantBetween(t, "LockAll took", b.at(), 20*time.Millisecond, 20*time.Millisecond, "one round trip")
		for _, key := range all.Keys() {
			if l := all.Lease(key); l.Key() != key || l.Token() == 0 {
				t.Errorf("the lease on %q is on %q, token %d", key, l.Key(), l.Token())
			}
		}
		if all.Lease("d") != nil {
			t.Error("a lease on a key that is not of the set")
		}
		if err := all.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
		wantBetween(t, "Unlock ended at", b.at(), 40*time.Millisecond, 40*time.Millisecond, "one round trip")
		b.wantHeld()
		wantErr(t, all.Unlock(t.Context()), ErrNotHeld, "it was unlocked")
		wantErr(t, all.Err(), ErrNotHeld, "it was unlocked")
		select {
		case <-all.Lost():
			t.Error("Unlock is no loss")
		default:
		}
	})
}

// While it waits for a key a call holds those before it only.
func TestLockAllWaitsInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, plain)
		second, third := b.lock(t.Context(), "b"), b.lock(t.Context(), "c")
		call, all := b.lockingAll(t.Context(), []string{"d", "c", "b", "a"})
		b.until(time.Second)
		b.wantHeld("a", "b", "c")
		b.unlock(second)
		b.until(2 * time.Second)
		if call.over() {
			t.Fatal("granted while c is held")
		}
		b.unlock(b.lock(t.Context(), "d"))
		b.unlock(third)
		b.wantHeld("a", "b", "c", "d")
		if err := all().Unlock(t.Context()); err != nil {
			t.Error(err)
		}
		b.wantHeld()
	})
}

// A call that fails gives back what it has.
func TestLockAllIsAllOrNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, plain, WithTTL(time.Second), WithWait(5*time.Second))
		taken := b.lock(t.Context(), "m")
		keys := []string{"a", "m", "z"}

		start := b.at()
		_, err := LockAll(t.Context(), b.Client, keys, WithWait(0))
		wantErr(t, err, ErrNotAcquired, "m is taken")
		wantBetween(t, "one attempt took", b.at()-start, 0, 0, "no wait")
		b.wantHeld("m")

		start = b.at()
		_, err = LockAll(t.Context(), b.Client, keys)
		wantErr(t, err, ErrNotAcquired, "m is taken")
		wantBetween(t, "the call took", b.at()-start, 5*time.Second, 5*time.Second, "the Locker's wait")
		b.wantHeld("m")

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = LockAll(ctx, b.Client, keys, WithUnboundedWait())
		wantErr(t, err, ErrNotAcquired, "m is taken")
		wantErr(t, err, context.DeadlineExceeded, "ctx ended it")
		b.wantHeld("m")

		_, err = LockAll(t.Context(), b.Client, []string{"a", "", "z"})
		wantErr(t, err, ErrInvalid, "a key is empty")
		b.wantHeld("m")
		b.unlock(taken)
	})
}

// The wait is that of the whole call.
func TestLockAllWaitsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, plain, WithWait(3*time.Second))
		for _, opts := range [][]LockOption{{}, {WithWait(4 * time.Second)}} {
			start := b.at()
			first, second := b.lock(t.Context(), "a"), b.lock(t.Context(), "b")
			call, _ := b.lockingAll(t.Context(), []string{"a", "b"}, opts...)
			b.until(start + 2*time.Second)
			b.unlock(first)
			want := start + time.Duration(3+len(opts))*time.Second
			call.wantEnd(t, want, want, "WithWait counts from the call")
			wantErr(t, call.err, ErrNotAcquired, "b is taken")
			b.wantHeld("b")
			b.unlock(second)
		}
	})
}

// A lease that ends by itself while the call waits for another key is told of.
func TestLockAllLosesWhatItWaitsTooLongWith(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, plain)
		taken := b.lock(t.Context(), "b")
		call, _ := b.lockingAll(t.Context(), []string{"a", "b"}, WithTTL(time.Second), WithoutRenewal())
		b.until(2 * time.Second)
		b.unlock(taken)
		<-call.done
		wantErr(t, call.err, ErrLost, "a was held for its TTL")
		b.wantHeld()
	})
}

// A loss ends the wait, and a store that hangs is waited for no longer than WithWait says.
func TestLockAllEndsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, plain, WithTTL(3*time.Second))
		taken := b.lock(t.Context(), "z")
		call, _ := b.lockingAll(t.Context(), []string{"a", "z"})
		b.until(time.Minute)
		b.store.free("a")
		call.wantEnd(t, time.Minute, time.Minute+3*time.Second, "a is lost")
		wantErr(t, call.err, ErrLost, "a is lost")
		b.unlock(taken)
		b.wantHeld()

		b.store.from(opAcquire, hang)
		start := b.at()
		var keys []string
		for i := range 300 {
			keys = append(keys, fmt.Sprint(i))
		}
		_, err := LockAll(t.Context(), b.Client, keys, WithWait(100*time.Millisecond))
		wantErr(t, err, ErrUnavailable, "no answer came")
		wantBetween(t, "the call took", b.at()-start, 100*time.Millisecond, 400*time.Millisecond, "its wait")
	})
}

// Callers whose sets overlap, in any order, all come through; callers with one key do not
// keep those with several out.
func TestLockAllPassesThrough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, plain)
		keys := []string{"a", "b", "c", "d", "e"}
		inside := make(map[string]int)
		var mu sync.Mutex
		enter := func(keys []string, by int) {
			mu.Lock()
			defer mu.Unlock()
			for _, key := range keys {
				if inside[key] += by; inside[key] > 1 {
					t.Errorf("%d are inside %s", inside[key], key)
				}
			}
		}
		var wg sync.WaitGroup
		for i := range 12 {
			wg.Go(func() {
				r := rand.New(rand.NewPCG(1, uint64(i)))
				for range 40 {
					some := slices.Clone(keys)
					r.Shuffle(len(some), func(i, j int) { some[i], some[j] = some[j], some[i] })
					some = some[:1+i%4]
					all, err := LockAll(t.Context(), b.Client, some)
					if err != nil {
						t.Error(err)
						return
					}
					enter(some, 1)
					time.Sleep(time.Duration(r.IntN(5)) * time.Millisecond) // of the bubble's clock
					enter(some, -1)
					if err := all.Unlock(t.Context()); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		b.wantHeld()
	})
}

func TestLockAllRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, plain)
		var none *Leases
		for what, err := range map[string]error{
			"no key":     second(LockAll(t.Context(), b.Client, nil)),
			"no locker":  second(LockAll(t.Context(), nil, []string{"a"})),
			"no ctx":     second(LockAll(noContext, b, []string{"a"})),
			"bad option": second(LockAll(t.Context(), b.Client, []string{"a", "b"}, WithWait(-1))),
			"nil Unlock": none.Unlock(t.Context()), "nil Renew": none.Renew(t.Context()), "nil Err": none.Err(),
			"zero": new(Leases).Unlock(t.Context()), "Unlock of nil": b.lockAll(t.Context(), "a").Unlock(noContext),
		} {
			wantErr(t, err, ErrInvalid, what)
		}
		<-none.Lost()
		if none.Keys() != nil || none.Lease("a") != nil || !none.Deadline().IsZero() || none.Context(t.Context()).Err() == nil {
			t.Error("nil Leases hold something")
		}
	})
}

var noContext context.Context

func second[T any](_ T, err error) error { return err }

// LockAll fails as Lock does when its context ends before its first attempts are sent: that
// is no trouble of the store.
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

// A bad key is found before any of the others is taken, however many there are.
func TestLockAllChecksAllKeysFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, plain)
		keys := []string{"\xff"} // sorts last
		for i := range 2 * atOnce {
			keys = append(keys, fmt.Sprintf("k%03d", i))
		}
		_, err := LockAll(t.Context(), b.Client, keys)
		wantErr(t, err, ErrInvalid, "a key is no UTF-8")
		b.wantSent(opAcquire, 0, "nothing was taken")
	})
}

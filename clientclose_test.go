package locker

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/distlock/locker/internal/bound"
)

// Close ends every waiter at once with ErrClosed, wherever it is, and refuses new
// calls.
func TestCloseEndsWaiters(t *testing.T) {
	for name, c := range closedWaiters {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, c.k)
				waiting := c.begin(b)
				b.until(3 * time.Second)
				if waiting.over() {
					t.Fatalf("the call ended at %v with %v, want it to wait", waiting.end, waiting.err)
				}
				if err := b.Close(); err != nil {
					t.Errorf("Close: %v, want nil", err)
				}
				waiting.wantEnd(t, 3*time.Second, 3*time.Second, "Close ends it")
				wantErr(t, waiting.err, ErrClosed, "Close ended it", ErrNotAcquired)
				wantBetween(t, "Close returned at", b.at(), 3*time.Second, 3*time.Second+closeBudget+closeGrace, "within 5s")
				if n := b.store.watching(); n != 0 {
					t.Errorf("%d watches are open, want none after Close", n)
				}
				sent := len(b.store.sent(opAcquire))
				_, err := b.Lock(t.Context(), "other")
				wantErr(t, err, ErrClosed, "Lock after Close", ErrUnavailable)
				_, err = b.TryLock(t.Context(), "other")
				wantErr(t, err, ErrClosed, "TryLock after Close", ErrUnavailable)
				b.until(time.Minute)
				b.wantSent(opAcquire, sent, "none after Close")
			})
		})
	}
}

var closedWaiters = map[string]struct {
	k     kind
	begin func(b *bench) *locking
}{
	"polling": {plain, func(b *bench) *locking {
		b.store.seize("k", "stranger", time.Hour)
		return b.locking(b.t.Context(), "k")
	}},
	"watching": {notifying, func(b *bench) *locking {
		b.store.seize("k", "stranger", time.Hour)
		return b.locking(b.t.Context(), "k")
	}},
	"behind a local holder": {plain, func(b *bench) *locking {
		b.lock(b.t.Context(), "k")
		return b.locking(b.t.Context(), "k")
	}},
	"in an outage": {plain, func(b *bench) *locking {
		b.store.from(opAcquire, fail(errRefused))
		return b.locking(b.t.Context(), "k")
	}},
	"unanswered": {plain, func(b *bench) *locking {
		b.store.from(opAcquire, hang)
		return b.locking(b.t.Context(), "k")
	}},
	"unanswered TryLock": {plain, func(b *bench) *locking {
		b.store.from(opAcquire, hang)
		return b.begin(func() (*Lease, error) { return b.TryLock(b.t.Context(), "k") })
	}},
	"unanswered re-entry": {counting, func(b *bench) *locking {
		ann := ContextWithOwner(b.t.Context(), "ann")
		b.lock(ann, "k")
		b.store.from(opSetHolds, hang)
		return b.begin(func() (*Lease, error) { return b.TryLock(ann, "k") })
	}},
	"re-entering in an outage": {counting, func(b *bench) *locking {
		b.store.from(opSetHolds, fail(errRefused))
		b.lock(ContextWithOwner(b.t.Context(), "ann"), "k")
		return b.locking(ContextWithOwner(b.t.Context(), "ann"), "k")
	}},
}

// Close ends held leases without touching their keys; their own Unlock frees them.
func TestCloseEndsLeases(t *testing.T) {
	for name, k := range map[string]kind{"plain": plain, "counting": counting} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, k)
				outer := b.lock(ContextWithOwner(t.Context(), "ann"), "k")
				ctx := outer.Context(t.Context())
				inner := b.lock(ctx, "k")
				b.until(11 * time.Second)
				renewals := len(b.store.sent(opRenew))
				if err := b.Close(); err != nil {
					t.Errorf("Close: %v, want nil", err)
				}
				for what, err := range map[string]error{"Cause": context.Cause(ctx), "Renew": outer.Renew(t.Context())} {
					wantErr(t, err, ErrLost, what)
					wantErr(t, err, ErrClosed, what+" tells why")
				}
				if !lostIsClosed(outer) || !lostIsClosed(inner) {
					t.Error("Lost is open, want closed by Close")
				}
				b.until(20 * time.Second)
				b.wantSent(opRelease, 0, "the sections may still run")
				b.wantSent(opRenew, renewals, "none after Close")
				for i, l := range []*Lease{inner, outer} {
					if err := l.Unlock(t.Context()); err != nil {
						t.Errorf("Unlock %d after Close: %v, want nil", i, err)
					}
				}
				if held := b.store.held("k"); held != "" {
					t.Errorf("%s holds the key, want nobody: the last Unlock frees it after Close, too", held)
				}
				b.wantIdle("all leases are unlocked")
			})
		})
	}
}

// Close waits for what it has under way, within its budget, and then nothing
// more is sent.
func TestCloseWaitsForWork(t *testing.T) {
	for name, c := range map[string]struct {
		begin func(b *bench)
		took  time.Duration
	}{
		"nothing under way": {func(b *bench) { b.lock(b.t.Context(), "k") }, 0},
		"a renewal that ends with its context": {func(b *bench) {
			b.store.from(opRenew, hang)
			b.lock(b.t.Context(), "k", WithTTL(9*time.Second))
		}, 0},
		"a renewal that ends later": {func(b *bench) {
			b.store.from(opRenew, deaf(time.Second)) // longer than a driver should
			b.lock(b.t.Context(), "k", WithTTL(9*time.Second))
		}, time.Second},
		"a renewal that ends too late": {func(b *bench) {
			b.store.from(opRenew, deaf(time.Minute))
			b.lock(b.t.Context(), "k", WithTTL(9*time.Second))
		}, closeBudget + closeGrace},
		"an Unlock": {func(b *bench) {
			b.store.from(opRelease, delay(time.Second, obey))
			l := b.lock(b.t.Context(), "k")
			b.until(3500 * time.Millisecond)
			b.unlocking(b.t.Context(), l)
		}, time.Second},
		"an attempt, and its clean-up in an outage": {func(b *bench) {
			b.until(3500 * time.Millisecond)
			b.store.from(opAcquire, hang)
			b.store.from(opRelease, hang)
			b.locking(b.t.Context(), "k")
		}, closeBudget},
		"a driver that is long in closing": {func(b *bench) { b.store.closing = time.Minute }, closeBudget + closeGrace + driverGrace},
		"an attempt that hangs, and such a driver": {func(b *bench) { // A9
			b.store.closing = 3 * time.Second
			b.store.from(opAcquire, hang)
			b.store.from(opRelease, hang)
			b.locking(b.t.Context(), "k")
		}, closeBudget + closeGrace + driverGrace},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, plain)
				c.begin(b)
				b.until(3500 * time.Millisecond)
				if err := b.Close(); (err != nil) != (b.store.closing > 0) {
					t.Errorf("Close: %v, want an error if the driver is not through", err)
				}
				if took := b.at() - 3500*time.Millisecond; took > 5*time.Second {
					t.Errorf("Close took %v, want 5s at most", took)
				}
				end := 3500*time.Millisecond + c.took
				wantBetween(t, "Close returned at", b.at(), end, end, "it waits for what is under way")
				synctest.Wait()
				sent := len(b.store.sent(opRelease)) + len(b.store.sent(opRenew))
				b.until(5 * time.Minute)
				if n := len(b.store.sent(opRelease)) + len(b.store.sent(opRenew)) - sent; n != 0 {
					t.Errorf("%d commands after Close, want none: nothing runs any more", n)
				}
			})
		})
	}
}

// When Close returns, the observer has been told all and is not called any more.
func TestCloseDeliversEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told, calls atomic.Int32
		b := newBench(t, plain, WithObserver(ObserverFunc(func(_ context.Context, e Event) {
			calls.Add(1)
			defer calls.Add(-1)
			bound.Sleep(t.Context(), nil, 10*time.Millisecond)
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
		if n := b.running(); n != 0 {
			t.Errorf("%d pieces of work go on when Close returns, want none", n)
		}
		b.until(10 * time.Second)
	})
}

// Close ends a watch that lingers.
func TestCloseEndsLingeringWatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, notifying)
		b.store.seize("k", "stranger", time.Hour)
		waiting := b.locking(t.Context(), "k")
		b.store.free("k")
		b.unlock(waiting.wantLease(t))
		if n := b.store.watching(); n != 1 {
			t.Fatalf("%d watches are open, want 1: it lingers", n)
		}
		_ = b.Close()
		if n := b.store.watching(); n != 0 {
			t.Errorf("%d watches are open, want none after Close", n)
		}
	})
}

// Close is idempotent, closes the driver once, and concurrent calls all return
// when it is through.
func TestCloseTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, plain)
		b.store.from(opRelease, delay(time.Second, obey))
		b.unlocking(t.Context(), b.lock(t.Context(), "k"))
		var all sync.WaitGroup
		for range 5 {
			all.Go(func() {
				if err := b.Close(); err != nil {
					t.Errorf("Close: %v, want nil", err)
				}
				wantBetween(t, "Close returned at", b.at(), time.Second, time.Second, "when the release under way has ended")
			})
		}
		all.Wait()
		if err := b.Close(); err != nil {
			t.Errorf("Close once more: %v, want nil", err)
		}
		b.store.t.Mu.Lock()
		defer b.store.t.Mu.Unlock()
		if b.store.closes != 1 {
			t.Errorf("the driver was closed %d times, want once", b.store.closes)
		}
	})
}

// Close beside Lock, re-entry and Unlock: each call ends as if before or after,
// an Unlock is never refused, and nothing is left.
func TestCloseDuringUse(t *testing.T) {
	for name, k := range map[string]kind{"plain": plain, "counting": counting, "notifying": notifying} {
		t.Run(name, func(t *testing.T) {
			for i := range 40 {
				synctest.Test(t, func(t *testing.T) {
					b := newBench(t, k)
					for _, o := range []op{opAcquire, opRelease, opSetHolds, opWatch} {
						b.store.from(o, delay(time.Duration(1+i%7)*time.Millisecond, obey))
					}
					var all sync.WaitGroup
					for g := range 8 {
						key := fmt.Sprint("k", g%3)
						all.Go(func() {
							for {
								l, err := b.Lock(t.Context(), key)
								if err != nil {
									wantErr(t, err, ErrClosed, "nothing else ends a Lock here", ErrUnavailable)
									return
								}
								again, err := b.Lock(l.Context(t.Context()), key)
								if err == nil {
									if err := again.Unlock(t.Context()); err != nil {
										t.Errorf("inner Unlock: %v, want nil", err)
									}
								}
								if err := l.Unlock(t.Context()); err != nil {
									t.Errorf("Unlock: %v, want nil", err)
								}
							}
						})
					}
					b.until(time.Duration(20+i) * time.Millisecond)
					if err := b.Close(); err != nil {
						t.Errorf("Close: %v, want nil", err)
					}
					all.Wait()
					b.until(time.Second)
					for g := range 3 {
						if held := b.store.held(fmt.Sprint("k", g)); held != "" {
							t.Errorf("%s holds a key, want nobody: every lease was unlocked", held)
						}
					}
					b.wantIdle("all leases are unlocked")
				})
			}
		})
	}
}

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

// holdsSent are the counts told to the store.
func (b *bench) holdsSent() (ns []int) {
	for _, c := range b.store.sent(opSetHolds) {
		ns = append(ns, c.holds)
	}
	return ns
}

// The store is told absolute counts, one command for each inner Lock and Unlock,
// and keeps its token and TTL.
func TestReentryIsCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, counting)
		outer := b.lock(t.Context(), "k")
		ctx := outer.Context(t.Context())
		middle := b.lock(ctx, "k", WithTTL(time.Second))
		inner := b.lock(middle.Context(ctx), "k")
		if outer.Holds() != 3 || inner.Token() != outer.Token() || inner.Owner() != outer.Owner() || inner.Deadline() != outer.Deadline() {
			t.Errorf("%d holds, tokens %d, %d; want 3 holds of one claim", outer.Holds(), outer.Token(), inner.Token())
		}
		b.unlock(outer) // any order
		b.unlock(inner)
		if got, want := b.holdsSent(), []int{2, 3, 2, 1}; !slices.Equal(got, want) {
			t.Errorf("counts sent: %v, want %v", got, want)
		}
		b.wantSent(opAcquire, 1, "re-entry acquires nothing")
		b.wantSent(opRelease, 0, "a hold is left")
		b.unlock(middle)
		b.wantSent(opRelease, 1, "the last Unlock frees the key")
		b.wantEvents(map[EventKind]int{EventAcquired: 1, EventReleased: 1}, "re-entry is no event")
		b.wantIdle("all leases are unlocked")
	})
}

// Two leases of one claim that are unlocked at once both go, with the count and
// the release in order.
func TestConcurrentUnlockOfTwoLeases(t *testing.T) {
	for name, slow := range map[string]op{"release": opRelease, "set holds": opSetHolds} {
		t.Run("slow "+name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, counting)
				b.store.from(slow, delay(time.Millisecond, obey))
				for range 20 {
					outer := b.lock(t.Context(), "k")
					inner := b.lock(outer.Context(t.Context()), "k")
					var both sync.WaitGroup
					for _, l := range []*Lease{outer, inner} {
						both.Go(func() {
							if err := l.Unlock(t.Context()); err != nil {
								t.Errorf("Unlock: %v, want nil: nothing was lost", err)
							}
						})
					}
					both.Wait()
				}
				b.wantEvents(map[EventKind]int{EventAcquired: 20, EventReleased: 20}, "nothing was lost")
				b.wantIdle("all leases are unlocked")
			})
		})
	}
}

// An inner Unlock that failed may be called again after the outer one has freed
// the key: its hold has gone with it.
func TestInnerUnlockAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, counting)
		outer := b.lock(t.Context(), "k")
		inner := b.lock(outer.Context(t.Context()), "k")
		b.store.from(opSetHolds, fail(errReset))
		wantErr(t, inner.Unlock(t.Context()), ErrUnavailable, "the count could not be told")
		b.unlock(outer)
		if held := b.store.held("k"); held != "" {
			t.Errorf("%s holds the key, want nobody: the last Unlock frees it whatever the count says", held)
		}
		if err := inner.Unlock(t.Context()); err != nil {
			t.Errorf("inner Unlock again: %v, want nil: nothing is held", err)
		}
	})
}

// An inner Unlock that hangs does not keep the outer one from freeing the key, and is
// told that its hold has gone with it.
func TestOuterUnlockBehindAHangingInnerOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, counting, WithTTL(30*time.Second))
		outer := b.lock(t.Context(), "k")
		inner := b.lock(outer.Context(t.Context()), "k")
		b.store.from(opSetHolds, deaf(2*time.Second))
		hanging := b.unlocking(t.Context(), inner)
		b.until(10 * time.Millisecond)
		b.unlock(outer)
		hanging.wantEnd(t, 0, releaseBudget, "nothing is held any more")
		if hanging.err != nil {
			t.Errorf("inner Unlock: %v, want nil", hanging.err)
		}
		b.lock(t.Context(), "k")
		wantBetween(t, "locked anew at", b.at(), 0, releaseBudget, "the key was free")
	})
}

// TryLock does not wait for what an Unlock of the same claim waits for, beyond the
// time of one attempt.
func TestTryLockBehindAHangingInnerUnlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, counting, WithTTL(time.Second))
		ctx := ContextWithOwner(t.Context(), "ann")
		outer := b.lock(ctx, "k")
		inner := b.lock(ctx, "k")
		b.store.from(opSetHolds, hang)
		hanging := b.unlocking(t.Context(), inner)
		b.until(10 * time.Millisecond)
		_, err := b.TryLock(ctx, "k")
		wantErr(t, err, ErrUnavailable, "the count cannot be written", ErrNotAcquired, context.DeadlineExceeded)
		wantBetween(t, "TryLock ended at", b.at(), time.Second, time.Second+20*time.Millisecond, "an attempt is given a TTL")
		b.store.from(opSetHolds, nil)
		<-hanging.done
		b.unlock(outer)
		b.wantIdle("all leases are unlocked")
	})
}

// Re-entry that the store denies while the last Unlock is under way is no grant,
// no loss and no nil: the caller locks anew.
func TestReentryOfAClaimBeingReleased(t *testing.T) {
	for name, ctx := range map[string]func(*Lease) context.Context{
		"named":   func(*Lease) context.Context { return ContextWithOwner(context.Background(), "ann") },
		"carried": func(l *Lease) context.Context { return context.WithoutCancel(l.Context(context.Background())) },
	} {
		for what, s := range map[string]step{
			"denied":   delay(10*time.Millisecond, fail(ErrLost)),
			"counted":  delay(10*time.Millisecond, obey),
			"no reply": loseReply,
		} {
			t.Run(name+", "+what, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					b := newBench(t, counting)
					first := b.lock(ContextWithOwner(t.Context(), "ann"), "k")
					b.store.next(opSetHolds, s)
					again := b.begin(func() (*Lease, error) { return b.Lock(ctx(first), "k") })
					b.until(5 * time.Millisecond)
					unlocking := b.unlocking(t.Context(), first)
					l := again.wantLease(t)
					if l == nil {
						t.Fatal("no lease and no error, want a lease")
					}
					<-unlocking.done
					if unlocking.err != nil {
						t.Errorf("Unlock: %v, want nil", unlocking.err)
					}
					if l.Holds() != 1 || l.Token() <= first.Token() {
						t.Errorf("%d holds, token %d after %d; want a fresh claim", l.Holds(), l.Token(), first.Token())
					}
					b.unlock(l)
					b.wantEvents(map[EventKind]int{EventAcquired: 2, EventReleased: 2}, "two claims, one after the other")
					b.wantIdle("all leases are unlocked")
				})
			})
		}
	}
}

// A dead context does not re-enter, with any driver, any time; one whose outer
// lease is lost says so first.
func TestReentryUnderADeadContext(t *testing.T) {
	for name, k := range map[string]kind{"plain": plain, "counting": counting} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, k)
				outer := b.lock(t.Context(), "k", WithTTL(time.Second), WithoutRenewal())
				ctx, cancel := context.WithCancel(outer.Context(t.Context()))
				cancel()
				for range 50 {
					_, err := b.Lock(ctx, "k")
					wantErr(t, err, context.Canceled, "the context is done")
					wantErr(t, err, ErrNotAcquired, "the context is done", ErrUnavailable)
				}
				b.until(time.Second)
				_, err := b.Lock(ctx, "k")
				wantErr(t, err, ErrLost, "the outer lease is lost")
			})
		})
	}
}

// Re-entry rides out trouble like Lock does, and ends with its context; TryLock
// makes one attempt. A hold that nobody was told of is taken back.
func TestReentryInTrouble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, counting)
		outer := b.lock(t.Context(), "k")
		ctx := outer.Context(t.Context())

		b.store.from(opSetHolds, fail(errRefused))
		_, err := b.TryLock(ctx, "k")
		wantErr(t, err, ErrUnavailable, "the attempt failed", ErrNotAcquired)
		b.wantSent(opSetHolds, 1, "one attempt")
		_, err = b.Lock(ctx, "k", WithWait(time.Second))
		wantErr(t, err, ErrUnavailable, "the outage went on", ErrNotAcquired)
		waiting := b.locking(ctx, "k")
		b.until(5 * time.Second)
		b.store.from(opSetHolds, nil)
		b.unlock(waiting.wantLease(t))

		b.store.next(opSetHolds, replyAfter(time.Second))
		_, err = b.Lock(ctx, "k", WithWait(100*time.Millisecond))
		wantErr(t, err, ErrUnavailable, "no answer came", ErrNotAcquired)
		b.until(10 * time.Second)
		if n := outer.Holds(); n != 1 {
			t.Errorf("%d holds, want 1: the one that came too late was taken back", n)
		}
		if got := b.holdsSent(); got[len(got)-1] != 1 {
			t.Errorf("counts sent: %v, want 1 at the end", got)
		}
		b.store.next(opSetHolds, fail(errNoPerm))
		_, err = b.Lock(ctx, "k")
		wantErr(t, err, ErrUnavailable, "permanent trouble is not ridden out", ErrNotAcquired)
		b.unlock(outer)
		b.wantIdle("all leases are unlocked")
	})
}

// A count that the store denies is a loss, known at once by every lease of the
// claim.
func TestDeniedCount(t *testing.T) {
	for name, c := range map[string]struct {
		ask    func(b *bench, outer, inner *Lease) error
		events map[EventKind]int
	}{
		"Lock": {func(b *bench, outer, _ *Lease) error {
			_, err := b.Lock(outer.Context(b.t.Context()), "k")
			return err
		}, map[EventKind]int{EventAcquired: 1, EventNotAcquired: 1, EventLost: 1}},
		"Unlock": {func(b *bench, _, inner *Lease) error { return inner.Unlock(b.t.Context()) },
			map[EventKind]int{EventAcquired: 1, EventLost: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, counting)
				outer := b.lock(t.Context(), "k")
				inner := b.lock(outer.Context(t.Context()), "k")
				b.store.seize("k", "thief", time.Hour)
				wantErr(t, c.ask(b, outer, inner), ErrLost, "the thief has it")
				if !lostIsClosed(outer) {
					t.Error("Lost of the outer lease is open, want closed")
				}
				if err := inner.Unlock(t.Context()); !errors.Is(err, ErrLost) && !errors.Is(err, ErrNotHeld) {
					t.Errorf("Unlock after the loss: %v, want ErrLost, or ErrNotHeld if unlocked before", err)
				}
				wantErr(t, outer.Unlock(t.Context()), ErrLost, "the thief has it")
				if held := b.store.held("k"); held != "thief" {
					t.Errorf("%q holds the key, want the thief", held)
				}
				b.wantEvents(c.events, "lost once")
				b.wantIdle("all leases are unlocked")
			})
		})
	}
}

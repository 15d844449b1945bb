package locker

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// The owner of a lease that was handed over is its own: naming it re-enters, as it does
// for any other lease.
func TestHandedOverLeaseIsReenteredByItsOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, lease, waiting := handingOver(t, plain, 2, nil)
		for i := range 3 {
			for how, ctx := range map[string]context.Context{"under the lease": lease.Context(t.Context()), "elsewhere": t.Context()} {
				again, err := b.TryLock(ContextWithOwner(ctx, lease.Owner()), "k")
				if err != nil {
					t.Fatalf("hold %d, its owner named %s: %v", i, how, err)
				}
				b.unlock(again)
			}
			b.unlock(lease)
			if len(waiting) > 0 {
				lease, waiting = waiting[0].wantLease(t), waiting[1:]
			}
		}
		b.wantSent(opAcquire, 2, "handed over")
	})
}

// A caller that names the owner of a lease that was handed over is no part of the hold
// after it: it waits, and gives up when its context ends.
func TestOwnerOfAHoldThatIsOver(t *testing.T) {
	for name, k := range map[string]kind{"plain": plain, "counting": counting} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, lease, waiting := handingOver(t, k, 1, nil)
				owner := lease.tenure.owner
				b.unlock(lease)
				next := waiting[0].wantLease(t)
				b.wantSent(opAcquire, 2, "handed over")
				ctx, cancel := context.WithTimeout(ContextWithOwner(t.Context(), owner), 50*time.Millisecond)
				defer cancel()
				_, err := b.Lock(ctx, "k")
				wantErr(t, err, ErrNotAcquired, "the lock is another's by now")
				b.unlock(next)
			})
		})
	}
}

// To ask for the owner changes nothing: a lock that may be handed over is, and nobody else
// shares it, whatever name another process has got hold of.
func TestOwnerOfALockThatMayBeHandedOver(t *testing.T) {
	for name, k := range map[string]kind{"plain": plain, "counting": counting} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, lease, waiting := handingOver(t, k, 1, nil)
				other, err := New(b.store.as(k))
				if err != nil {
					t.Fatal(err)
				}
				defer other.Close()
				synctest.Wait() // the next one has looked, and waits
				named := ContextWithOwner(t.Context(), lease.Owner())
				for range 2 { // before the hand-over and after it
					if _, err = other.TryLock(named, "k"); !errors.Is(err, ErrNotAcquired) {
						t.Fatalf("another process: %v, want %v", err, ErrNotAcquired)
					}
					if lease != nil {
						b.unlock(must(b.TryLock(named, "k"))(t)) // the same Locker
						b.unlock(lease)
						lease = nil
					}
				}
				next := waiting[0].wantLease(t)
				_, err = b.TryLock(named, "k")
				wantErr(t, err, ErrNotAcquired, "that lease is over")
				b.unlock(next)
				b.wantSent(opAcquire, 4, "two of this Locker's, two of the other")
			})
		})
	}
}

// A lock that will not be handed over is shared by whoever names its made-up owner.
func TestOwnerOfALockForWhichNobodyWaited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, counting)
		b.store.blocks = true
		lease := b.lock(t.Context(), "k")
		next := b.locking(t.Context(), "k")
		other, err := New(b.store.as(counting))
		if err != nil {
			t.Fatal(err)
		}
		defer other.Close()
		shared := must(other.TryLock(ContextWithOwner(t.Context(), lease.Owner()), "k"))(t)
		b.unlock(lease)
		b.until(5 * time.Second)
		if next.over() {
			t.Error("the next caller is inside beside one that shares the lock")
		}
		if err := shared.Unlock(t.Context()); err != nil {
			t.Fatal(err)
		}
		b.unlock(next.wantLease(t))
	})
}

// A made-up owner by whose name the lock was shared remembers the loss, until all leases are unlocked.
func TestLossOfASharedMadeUpOwner(t *testing.T) {
	for name, k := range map[string]kind{"plain": plain, "counting": counting} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, k)
				l := b.lock(t.Context(), "k", WithTTL(time.Second), WithoutRenewal())
				me := ContextWithOwner(t.Context(), l.Owner())
				b.unlock(b.lock(me, "k"))
				inner := b.lock(me, "k")
				b.until(2 * time.Second)
				for _, lock := range []func(context.Context, string, ...LockOption) (*Lease, error){b.Lock, b.TryLock} {
					if _, err := lock(me, "k"); !errors.Is(err, ErrLost) {
						t.Fatalf("%v, want ErrLost: the section under the lost lease still runs", err)
					}
				}
				b.unlock(b.lock(t.Context(), "k"))
				wantErr(t, l.Unlock(t.Context()), ErrLost, "it has expired")
				_, err := b.TryLock(me, "k")
				wantErr(t, err, ErrLost, "one of its leases is left")
				wantErr(t, inner.Unlock(t.Context()), ErrLost, "it has expired")
				b.unlock(b.lock(me, "k"))
				b.wantIdle("all leases are unlocked")
			})
		})
	}
}

// A renewal under way at the hand-over is none of the next lease's.
func TestRenewalOfTheHoldBeforeDoesNotCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, lease, waiting := handingOver(t, plain, 1, []LockOption{WithTTL(time.Second), WithMaxRenewals(1)},
			WithHandOver(5, time.Second), WithRenewInterval(100*time.Millisecond))
		b.store.next(opRenew, replyAfter(20*time.Millisecond))
		b.until(b.at() + 105*time.Millisecond)
		b.wantSent(opRenew, 1, "under way")
		b.unlock(lease)
		next := waiting[0].wantLease(t)
		<-next.Lost()
		b.wantSent(opRenew, 2, "one of each lease")
	})
}

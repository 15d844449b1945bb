package locker

import (
	"context"
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
				owner := lease.hold.owner
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

// A made-up owner that was asked for may name the lock in another process, where the
// store lets it: such a lock is not handed over.
func TestLockThatMayBeSharedIsNotHandedOver(t *testing.T) {
	for name, c := range map[string]struct {
		k     kind
		asked int
	}{"plain": {plain, 2}, "counting": {counting, 3}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, lease, waiting := handingOver(t, c.k, 1, nil)
				_ = lease.Owner()
				synctest.Wait() // the next one has looked, and waits
				b.unlock(lease)
				b.unlock(waiting[0].wantLease(t))
				b.wantSent(opAcquire, c.asked, "the store is asked if it lets others share")
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

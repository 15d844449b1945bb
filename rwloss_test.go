package locker

import (
	"testing"
	"testing/synctest"
	"time"
)

// The loss of a lease that its reader has not unlocked keeps no other reader out.
func TestLostReaderIsLeftBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, plain, WithTTL(time.Second))
		rw := newRW(t, b)
		lost := must(rw.RLock(t.Context()))(t)
		b.store.free("k")
		<-lost.Lost()
		for _, opts := range [][]LockOption{nil, {WithWait(0)}} {
			b.unlock(must(rw.RLock(t.Context(), opts...))(t))
		}
		wantErr(t, lost.Unlock(t.Context()), ErrLost, "it was lost")
		b.wantHeld()
	})
}

// A reader that comes between the loss and the end of the lost lease's contexts locks anew.
func TestReaderBetweenLossAndItsEnd(t *testing.T) {
	for name, opts := range map[string][]LockOption{"Lock": nil, "TryLock": {WithWait(0)}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, plain)
				rw := newRW(t, b)
				lost := must(rw.RLock(t.Context()))(t)
				b.store.free("k")
				lost.claim.s.mu.Lock()
				after := lost.claim.lose(lossDenied, ErrDenied)
				lost.claim.s.mu.Unlock()
				<-lost.Lost()
				next := b.begin(func() (*Lease, error) { return rw.RLock(t.Context(), opts...) })
				after.run()
				b.unlock(next.wantLease(t))
				wantErr(t, lost.Unlock(t.Context()), ErrLost, "it was lost")
				b.wantHeld()
			})
		})
	}
}

// A reader whose re-entry meets the loss of the lease takes the lock anew, as one that comes
// after it; a reader that re-enters by a context is told of the loss.
func TestReaderMeetsTheLoss(t *testing.T) {
	for name, opts := range map[string][]LockOption{"Lock": nil, "TryLock": {WithWait(0)}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, counting)
				rw := newRW(t, b)
				lost := must(rw.RLock(t.Context()))(t)
				b.store.next(opSetHolds, func(c *command) error { // the count that finds the loss
					c.f.free("k")
					return c.apply()
				})
				b.unlock(must(rw.RLock(t.Context(), opts...))(t))
				_, err := rw.RLock(lost.Context(t.Context()), opts...)
				wantErr(t, err, ErrLost, "its section is not protected any more")
				wantErr(t, lost.Unlock(t.Context()), ErrLost, "it was lost")
				b.wantHeld()
			})
		})
	}
}

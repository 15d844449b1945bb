package locker

import (
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// An owner who has lost a lock is told so until its lost leases are unlocked, and
// may then lock anew at once, whatever became of the release in the background.
func TestOwnerUnlocksBeforeLockingAnew(t *testing.T) {
	for name, k := range map[string]kind{"plain": plain, "counting": counting} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, k)
				ann := ContextWithOwner(t.Context(), "ann")
				outer := b.lock(ann, "k", WithTTL(time.Second), WithoutRenewal())
				inner := b.lock(ann, "k")
				b.until(2 * time.Second)
				refused := func(why string) {
					t.Helper()
					_, err := b.Lock(ann, "k")
					wantErr(t, err, ErrLost, "Lock: "+why, ErrNotAcquired)
					_, err = b.TryLock(ann, "k")
					wantErr(t, err, ErrLost, "TryLock: "+why, ErrNotAcquired)
				}
				refused("two lost leases are not unlocked")
				wantErr(t, inner.Unlock(ann), ErrLost, "it is lost")
				refused("a lost lease is not unlocked")

				b.store.next(opRelease, delay(50*time.Millisecond, obey))
				wantErr(t, outer.Unlock(ann), ErrLost, "it is lost")
				synctest.Wait() // the release is under way
				b.unlock(b.lock(ann, "k"))
				wantBetween(t, "locked anew at", b.at(), 2*time.Second, 2*time.Second, "no lost lease is left")
				b.until(3 * time.Second)
				b.wantIdle("all leases are unlocked")
			})
		})
	}
}

// An owner that waits while its lock is lost gets ErrLost, and does not wait for itself.
func TestWaitingOwnerLearnsOfItsLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, plain)
		ann := ContextWithOwner(t.Context(), "ann")
		held := b.lock(ann, "k", WithTTL(time.Second), WithoutRenewal())
		stranger := b.locking(t.Context(), "k")
		b.store.next(opAcquire, hang) // the stranger's, when the lock is lost
		b.until(1100 * time.Millisecond)
		_, err := b.Lock(ann, "k", WithWait(time.Minute))
		wantErr(t, err, ErrLost, "its lost lease is not unlocked")
		wantBetween(t, "Lock returned at", b.at(), 1100*time.Millisecond, 1100*time.Millisecond, "there is nothing to wait for")
		wantErr(t, held.Unlock(ann), ErrLost, "it is lost")
		b.unlock(stranger.wantLease(t))
	})
}

// Where the store keeps counts an owner may hold the key from another process,
// and re-enters here though others queue for it; elsewhere it queues.
func TestOwnerBehindAQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, counting)
		ann := ContextWithOwner(t.Context(), "ann")
		b.store.seize("k", "ann", time.Hour) // in another process
		bob := b.locking(ContextWithOwner(t.Context(), "bob"), "k")
		b.until(5 * time.Second)
		at := b.at()
		l := b.lock(ann, "k")
		wantBetween(t, "Lock re-entered at", b.at(), at, at, "its owner has the key")
		b.unlock(l)
		l, err := b.TryLock(ann, "k")
		if err != nil {
			t.Fatalf("TryLock: %v, want a lease: its owner has the key", err)
		}
		b.unlock(l)
		if bob.over() {
			t.Error("bob has the key, want him to wait: ann holds it in the other process")
		}
		b.store.free("k")
		b.unlock(bob.wantLease(t))
		b.wantIdle("all leases are unlocked")
	})
}

// An owner behind a queue does not ask the store whether it may re-enter: the head of
// the queue is told who holds.
func TestOwnerBehindAQueueAsksNever(t *testing.T) {
	for name, c := range map[string]struct {
		k kind
	}{"counting": {counting}, "plain": {plain}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, c.k)
				ann := ContextWithOwner(t.Context(), "ann")
				b.store.seize("k", "stranger", time.Hour)
				head := b.locking(t.Context(), "k", WithWait(10*time.Second))
				behind := b.locking(ann, "k", WithWait(10*time.Second-1))
				behind.wantEnd(t, 10*time.Second-1, 10*time.Second-1, "the wait was over")
				wantErr(t, behind.err, ErrNotAcquired, "a stranger has the key")
				<-head.done
				n := 0
				for _, a := range b.store.sent(opAcquire) {
					if a.Owner == "ann" {
						n++
					}
				}
				if n != 0 {
					t.Errorf("%d attempts out of turn in 10s, want none", n)
				}
				b.wantIdle("nobody waits")
			})
		})
	}
}

// An owner behind a queue looks about once a second whether it may re-enter,
// whatever happened before: a failed look, or a holder in this process.
func TestOwnerBehindAQueueKeepsAsking(t *testing.T) {
	for name, before := range map[string]func(b *bench) (then func()){
		"a failed look": func(b *bench) func() {
			b.store.seize("k", "stranger", time.Hour)
			return func() { b.store.seize("k", "ann", time.Hour) }
		},
		"a holder in this process": func(b *bench) func() {
			l := b.lock(b.t.Context(), "k")
			return func() {
				b.store.next(opAcquire, busy(time.Hour, false)) // the head comes too late
				b.store.seize("k", "ann", time.Hour)
				wantErr(b.t, l.Unlock(b.t.Context()), ErrLost, "ann has it in her other process")
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, counting)
				then := before(b)
				b.locking(t.Context(), "k", WithWait(time.Minute)) // the head
				var looked atomic.Bool
				b.store.from(opAcquire, func(c *command) error {
					if c.Owner == "ann" && looked.CompareAndSwap(false, true) {
						return errRefused
					}
					return obey(c)
				})
				if name != "a failed look" {
					looked.Store(true)
				}
				ann := b.locking(ContextWithOwner(t.Context(), "ann"), "k", WithWait(time.Minute))
				b.until(50 * time.Millisecond)
				then() // her other process gets the key, and waits for her here
				ann.wantEnd(t, 0, 3*time.Second, "its owner has the key")
				b.unlock(ann.wantLease(t))
			})
		})
	}
}

// Goroutines of one owner that wait for others all re-enter when the first of
// them is granted the key: one Acquired, one Released.
func TestOwnersGoroutinesShareAGrant(t *testing.T) {
	for name, k := range map[string]kind{"plain": plain, "counting": counting} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, k)
				b.store.from(opAcquire, delay(time.Millisecond, obey))
				ann := ContextWithOwner(t.Context(), "ann")
				stranger := b.lock(t.Context(), "k")
				var waiting []*locking
				for range 30 {
					waiting = append(waiting, b.locking(ann, "k"))
				}
				b.until(time.Second)
				b.unlock(stranger)
				var all sync.WaitGroup
				for _, w := range waiting {
					l := w.wantLease(t)
					if l.Token() != waiting[0].lease.Token() {
						t.Errorf("tokens %d, %d, want one: a shared hold", l.Token(), waiting[0].lease.Token())
					}
				}
				for _, w := range waiting {
					all.Go(func() {
						if err := w.lease.Unlock(ann); err != nil {
							t.Errorf("Unlock: %v, want nil", err)
						}
					})
				}
				all.Wait()
				b.wantEvents(map[EventKind]int{EventAcquired: 2, EventReleased: 2}, "the stranger's hold, and the owner's")
				b.wantIdle("all leases are unlocked")
			})
		})
	}
}

// Goroutines of an owner re-enter at once when it is granted the key, those
// behind others in the queue too.
func TestOwnerReentersPastTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, plain)
		ann := ContextWithOwner(t.Context(), "ann")
		b.store.seize("k", "stranger", time.Second)
		first := b.locking(ann, "k")
		bob := b.locking(t.Context(), "k")
		second := b.locking(ann, "k")
		first.wantLease(t)
		second.wantEnd(t, first.end, first.end, "its owner has the key")
		b.unlock(first.lease)
		synctest.Wait()
		if bob.over() {
			t.Error("bob has the key, want him to wait: a hold of ann's is left")
		}
		b.unlock(second.lease)
		b.unlock(bob.wantLease(t))
	})
}

// Two goroutines of one owner whose attempts cross share one grant: the second
// re-enters, which is no event.
func TestCrossedAttemptsOfOneOwner(t *testing.T) {
	for name, lock := range map[string]func(b *bench) func() (*Lease, error){
		"TryLock": func(b *bench) func() (*Lease, error) {
			return func() (*Lease, error) { return b.TryLock(ContextWithOwner(b.t.Context(), "ann"), "k") }
		},
		"Lock": func(b *bench) func() (*Lease, error) {
			return func() (*Lease, error) { return b.Lock(ContextWithOwner(b.t.Context(), "ann"), "k") }
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, counting)
				b.store.from(opAcquire, delay(time.Second, obey))
				first := b.begin(lock(b))
				second := b.begin(lock(b))
				b.until(2 * time.Second)
				b.unlock(first.wantLease(t))
				b.unlock(second.wantLease(t))
				b.wantEvents(map[EventKind]int{EventAcquired: 1, EventReleased: 1}, "one grant, shared")
				b.until(10 * time.Second)
				b.wantIdle("all leases are unlocked")
			})
		})
	}
}

package locker

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

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

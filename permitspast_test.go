package locker

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

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

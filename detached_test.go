package locker

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// Every call is bounded as under any other context where its own was detached from its end and
// has kept the Deadline.
func TestCallsUnderADetachedContext(t *testing.T) {
	const wait = 3 * time.Second
	for name, c := range map[string]struct {
		call  func(b *bench, ctx context.Context, held *Lease) error
		hangs op // the store does not answer these
		takes time.Duration
		want  error
	}{
		"Lock": {func(b *bench, ctx context.Context, _ *Lease) error {
			return second(b.Lock(ctx, "k", WithWait(wait)))
		}, "", wait, ErrNotAcquired},
		"LockAll": {func(b *bench, ctx context.Context, _ *Lease) error {
			return second(LockAll(ctx, b.Client, []string{"a", "k", "z"}, WithWait(wait)))
		}, "", wait, ErrNotAcquired},
		"LockAsync": {func(b *bench, ctx context.Context, _ *Lease) error {
			return second(LockAsync(ctx, b.Client, "k", WithWait(wait)).Lease())
		}, "", wait, ErrNotAcquired},
		"RWLock": {func(b *bench, ctx context.Context, _ *Lease) error {
			return second(newRW(b.t, b).RLock(ctx, WithWait(wait)))
		}, "", wait, ErrNotAcquired},
		"Semaphore": {func(b *bench, ctx context.Context, _ *Lease) error {
			s, _ := NewSemaphore(b.Client, "sem", 1)
			return second(s.Acquire(ctx, WithWait(wait)))
		}, "", wait, ErrNotAcquired},
		"TryLock": {func(b *bench, ctx context.Context, _ *Lease) error {
			return second(b.TryLock(ctx, "free"))
		}, opAcquire, commandTimeout, ErrUnavailable},
		"Renew": {func(_ *bench, ctx context.Context, held *Lease) error {
			return held.Renew(ctx)
		}, opRenew, commandTimeout, ErrUnavailable},
		"Unlock": {func(_ *bench, ctx context.Context, held *Lease) error {
			return held.Unlock(ctx)
		}, opRelease, releaseBudget, ErrUnavailable},
	} {
		for deadline, d := range map[string]time.Duration{"passed": time.Millisecond, "ahead": time.Second} {
			t.Run(name+", its Deadline is "+deadline, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					b := newBench(t, plain)
					held := b.lock(t.Context(), "mine")
					b.store.seize("k", "stranger", time.Hour)
					b.store.seize("sem:0", "stranger", time.Hour)
					if c.hangs != "" {
						b.store.from(c.hangs, hang)
						defer b.store.from(c.hangs, obey)
					}
					ctx, cancel := context.WithTimeout(t.Context(), d)
					defer cancel()
					time.Sleep(10 * time.Millisecond)
					start := b.at()
					calling := b.begin(func() (*Lease, error) { return nil, c.call(b, endless{ctx}, held) })
					b.until(start + 20*time.Second)
					if !calling.over() {
						t.Fatal("it has not returned after 20s")
					}
					wantBetween(t, "it took", calling.end-start, c.takes-300*time.Millisecond, c.takes+300*time.Millisecond, "that is its bound")
					wantErr(t, calling.err, c.want, "nothing ended but the wait", context.DeadlineExceeded)
				})
			})
		}
	}
}

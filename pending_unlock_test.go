package locker

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// When the release in the background has been given up, the next Unlock is a new
// try, not old news.
func TestUnlockAgainAfterTheBackgroundGaveUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, plain)
		l := b.lock(t.Context(), "k", WithTTL(time.Minute))
		b.store.from(opRelease, hang)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		wantErr(t, l.Unlock(ctx), ErrUnavailable, "no answer came")
		b.until(30 * time.Second)
		b.store.from(opRelease, nil)
		if err := l.Unlock(t.Context()); err != nil {
			t.Errorf("Unlock when the store is back: %v, want nil", err)
		}
		if held := b.store.held("k"); held != "" {
			t.Errorf("%s holds the key, want nobody", held)
		}
	})
}

// Renew that returns after the lease has ended says so.
func TestRenewBeyondTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, plain)
		l := b.lock(t.Context(), "k", WithTTL(time.Second), WithoutRenewal())
		b.until(500 * time.Millisecond)
		b.store.from(opRenew, hang)
		wantErr(t, l.Renew(context.Background()), ErrLost, fmt.Sprint("it is ", b.at(), " and the lease ended at 988ms"), ErrUnavailable)
	})
}

// slowContext is alive, and its Err returns when it may.
type slowContext struct {
	context.Context
	proceed chan struct{}
}

func (c slowContext) Err() error {
	<-c.proceed
	return c.Context.Err()
}

// An Unlock that began in time and overtakes the news of the loss gives the claim
// back as any other; nobody gets a nil lease, and TryLock comes back.
func TestUnlockOvertakesTheLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := stuckLog{slog.DiscardHandler, new(atomic.Bool), make(chan struct{}), make(chan struct{})}
		b := newBench(t, plain, WithTTL(time.Second), WithoutRenewal(), WithLogger(slog.New(log)))
		defer close(log.release)
		b.store.from(opRelease, delay(2*time.Second, obey))
		var all []*locking
		proceed := make(chan struct{})
		for i := range 5 {
			l := b.lock(ContextWithOwner(t.Context(), fmt.Sprint("owner ", i)), fmt.Sprint("k", i))
			all = append(all, b.unlocking(slowContext{t.Context(), proceed}, l))
		}
		<-log.stuck // one loss is told, the others are decided but not told
		close(proceed)
		synctest.Wait()
		for i := range all {
			ctx, cancel := context.WithTimeout(ContextWithOwner(t.Context(), fmt.Sprint("owner ", i)), 10*time.Second)
			defer cancel()
			l, err := b.Lock(ctx, fmt.Sprint("k", i))
			if l == nil && err == nil {
				t.Fatalf("Lock of k%d: no lease and no error, want either", i)
			}
		}
	})
}

// TryLock comes back while such a release is under way.
func TestTryLockDuringSuchAnUnlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := stuckLog{slog.DiscardHandler, new(atomic.Bool), make(chan struct{}), make(chan struct{})}
		b := newBench(t, plain, WithTTL(time.Second), WithoutRenewal(), WithLogger(slog.New(log)))
		defer close(log.release)
		b.store.from(opRelease, delay(2*time.Second, obey))
		proceed := make(chan struct{})
		for i := range 5 {
			b.unlocking(slowContext{t.Context(), proceed}, b.lock(t.Context(), fmt.Sprint("k", i)))
		}
		<-log.stuck
		close(proceed)
		synctest.Wait()
		for i := range 5 {
			if _, err := b.TryLock(t.Context(), fmt.Sprint("k", i)); err != nil {
				wantErr(t, err, ErrNotAcquired, "the key is being released")
			}
		}
	})
}

// A grant that arrives after a newer one is known is late; TryLock says so like of
// any other late grant.
func TestOvertakenGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, plain)
		b.store.next(opAcquire, replyAfter(time.Second))
		trying := b.begin(func() (*Lease, error) { return b.TryLock(t.Context(), "k") })
		b.store.free("k") // the store loses its data
		held := b.lock(t.Context(), "k")
		<-trying.done
		if trying.lease != nil || isLost(held) {
			t.Error("the late grant counts, want the newer one to count")
		}
		wantErr(t, trying.err, ErrUnavailable, "every error of TryLock is one of the package's")
		b.unlock(held)
	})
}

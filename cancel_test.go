package locker

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/distlock/locker/driver"
	"github.com/distlock/locker/internal/retry"
)

// Cancelling returns at once, wherever the waiter is; what its attempt may get is
// given back, also if the command reaches the store after that.
func TestCancelDuringAnAttempt(t *testing.T) {
	const again = time.Second + retry.RepeatAfter
	for name, c := range map[string]struct {
		s       step
		cleanUp []time.Duration
	}{
		"no answer":                  {hang, []time.Duration{time.Second, again}},
		"no answer, granted":         {loseReply, []time.Duration{time.Second}},
		"granted after the clean-up": {applyLate(1500 * time.Millisecond), []time.Duration{time.Second, again}},
		"certainly not applied": {func(c *command) error {
			<-c.ctx.Done()
			return &driver.StoreError{Err: c.ctx.Err(), NotApplied: true}
		}, nil},
	} {
		for _, op := range []string{"Lock", "TryLock"} {
			t.Run(name+" "+op, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					b := newBench(t, plain)
					b.store.next(opAcquire, c.s)
					ctx, cancel := context.WithCancel(t.Context())
					lock := b.Lock
					if op == "TryLock" {
						lock = b.TryLock
					}
					waiting := b.begin(func() (*Lease, error) { return lock(ctx, "k") })
					b.until(time.Second)
					cancel()
					waiting.wantEnd(t, time.Second, time.Second, "the caller does not wait for the attempt")
					wantErr(t, waiting.err, context.Canceled, "the context ended it")
					if b.keys() != 0 {
						t.Error("the Locker knows the key, want it forgotten: no caller holds it or waits")
					}

					b.until(20 * time.Second)
					sent := b.wantSent(opAcquire, 1, "no caller wants the key any more")[0]
					for i, r := range b.wantSent(opRelease, len(c.cleanUp), "what may be ours is given back") {
						wantBetween(t, "the clean-up was sent at", r.at, c.cleanUp[i], c.cleanUp[i], "at once, and once more if it found nothing")
						if r.ID != sent.ID {
							t.Errorf("%s was released, want %s", r.ID, sent.ID)
						}
					}
					if held := b.store.held("k"); held != "" {
						t.Errorf("%s holds the key, want it free", held)
					}
					b.wantIdle("the attempt has been cleaned up")
				})
			})
		}
	}
}

// A late clean-up cannot touch a later grant: the next attempt has another claim.
func TestLateCleanUpSparesTheNextGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, plain)
		ann := ContextWithOwner(t.Context(), "ann") // the same owner, even
		b.store.next(opAcquire, hang)
		ctx, cancel := context.WithTimeout(ann, time.Second)
		defer cancel()
		_, err := b.Lock(ctx, "k")
		wantErr(t, err, ErrUnavailable, "no answer came")
		l := b.lock(ann, "k")
		b.until(10 * time.Second)
		sent := b.store.sent(opAcquire)
		for _, r := range b.wantSent(opRelease, 2, "the first attempt is cleaned up") {
			if r.ID != sent[0].ID || r.ID == sent[1].ID {
				t.Errorf("the clean-up names %s, want the first claim %s and not the second %s", r.ID, sent[0].ID, sent[1].ID)
			}
		}
		if held := b.store.held("k"); held != "ann" {
			t.Errorf("%q holds the key, want ann", held)
		}
		b.unlock(l)
	})
}

// A waiter that gives up while it sleeps is gone at once, with its watch.
func TestCancelWhileWaiting(t *testing.T) {
	for name, k := range map[string]kind{"polling": plain, "watching": notifying} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, k)
				b.store.seize("k", "stranger", time.Hour)
				ctx, cancel := context.WithCancel(t.Context())
				waiting := b.locking(ctx, "k")
				b.until(5500 * time.Millisecond)
				cancel()
				waiting.wantEnd(t, b.at(), b.at(), "cancelling returns at once")
				wantErr(t, waiting.err, ErrNotAcquired, "the key was taken")
				b.wantIdle("nobody waits")
				sent := len(b.store.sent(opAcquire))
				b.until(time.Minute)
				b.wantSent(opAcquire, sent, "nobody waits")
				b.wantSent(opRelease, 0, "all attempts were refused")
			})
		})
	}
}

// A waiter that gives up while it subscribes leaves no watch behind.
func TestCancelWhileSubscribing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, notifying)
		b.store.seize("k", "stranger", time.Hour)
		b.store.next(opWatch, hang)
		_, err := b.Lock(t.Context(), "k", WithWait(300*time.Millisecond))
		wantBetween(t, "Lock returned at", b.at(), 300*time.Millisecond, 300*time.Millisecond, "the wait was over")
		wantErr(t, err, ErrNotAcquired, "the key was taken")
		b.wantIdle("nobody waits")
	})
}

// A grant that comes as its waiter gives up goes to the next one, not to waste
// for a TTL.
func TestGrantToNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, plain)
		b.store.next(opAcquire, replyAfter(100*time.Millisecond))
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		gone, next := b.locking(ctx, "k"), b.locking(t.Context(), "k")
		gone.wantEnd(t, 50*time.Millisecond, 50*time.Millisecond, "its context ended")
		next.wantEnd(t, 50*time.Millisecond, 50*time.Millisecond+pollMax, "the grant is given back at once")
		next.wantLease(t)
	})
}

// A clean-up is tried again while the store is in trouble, for as long as a
// release is.
func TestCleanUpInAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, plain)
		b.store.next(opAcquire, failAfter(errReset))
		b.store.from(opRelease, fail(errRefused))
		_, err := b.TryLock(t.Context(), "k")
		wantErr(t, err, ErrUnavailable, "the attempt failed")
		b.until(3 * time.Second)
		b.store.from(opRelease, nil)
		b.until(4 * time.Second)
		if held := b.store.held("k"); held != "" {
			t.Errorf("%s holds the key, want nobody: the clean-up is tried again", held)
		}
		b.wantIdle("the attempt has been cleaned up")
	})
}

package locker

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// A command whose answer is late holds up the queue of its key for 300 ms at most: then
// the next waiter asks the store.
func TestLateCommandsHoldUpTheQueueBriefly(t *testing.T) {
	for name, c := range map[string]struct {
		begin func(b *bench) // what is late; at 1s
		end   time.Duration  // when the next waiter has the lock, after that
		slack time.Duration
	}{
		"a release whose reply is lost": {func(b *bench) {
			b.store.next(opRelease, loseReply)
			l := b.lock(b.t.Context(), "k", WithTTL(30*time.Second))
			b.until(time.Second)
			b.unlocking(context.Background(), l)
		}, overdueAfter, 0},
		"a release that hangs beyond the TTL": {func(b *bench) {
			b.store.from(opRelease, hang)
			l := b.lock(b.t.Context(), "k", WithTTL(2*time.Second), WithoutRenewal())
			b.until(time.Second)
			b.unlocking(context.Background(), l)
		}, time.Second, 10 * time.Millisecond},
		"a release that hangs near the deadline": {func(b *bench) {
			b.store.from(opRelease, hang)
			b.until(time.Second)
			l := b.lock(b.t.Context(), "k", WithTTL(100*time.Millisecond), WithoutRenewal())
			b.unlocking(context.Background(), l)
		}, 100 * time.Millisecond, 10 * time.Millisecond},
		"an attempt that hangs": {func(b *bench) {
			b.until(time.Second)
			b.store.next(opAcquire, hang)
			b.locking(b.t.Context(), "k")
		}, overdueAfter, 0},
		"two attempts that hang": {func(b *bench) {
			b.until(time.Second)
			b.store.next(opAcquire, hang, hang)
			b.locking(b.t.Context(), "k")
			b.locking(b.t.Context(), "k")
		}, 2 * overdueAfter, 0},
	} {
		for when, late := range map[string]time.Duration{"that waits already": 0, "that comes later": overdueAfter / 3} {
			t.Run(name+", for a waiter "+when, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					b := newBench(t, plain)
					c.begin(b)
					time.Sleep(late)
					next := b.locking(t.Context(), "k")
					next.wantEnd(t, time.Second+c.end, time.Second+c.end+c.slack, "the store decides")
					next.wantLease(t)
					b.until(20 * time.Second) // what hangs has been given up
				})
			})
		}
	}
}

// However many waiters there are, a store that hangs is sent an attempt each 300 ms, not
// one for each waiter at once.
func TestHangingAttemptsAreFew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, plain)
		b.store.from(opAcquire, hang)
		for range 100 {
			b.locking(t.Context(), "k", WithWait(4*time.Second))
		}
		b.until(4*time.Second - 1)
		if n := b.store.atOnce(opAcquire); n > 14 {
			t.Errorf("%d attempts at the same time, want 14 at most", n)
		}
		b.until(10 * time.Second)
	})
}

// Grants that arrive when their lease is over add up to an outage: a store that is too
// slow for the TTL is of no use.
func TestLateGrantsAreAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, plain)
		b.store.from(opAcquire, replyAfter(98*time.Millisecond))
		_, err := b.Lock(t.Context(), "k", WithTTL(100*time.Millisecond))
		wantErr(t, err, ErrUnavailable, "no grant was in time", ErrNotAcquired)
		wantBetween(t, "Lock gave up at", b.at(), minOutage, minOutage+time.Second, "an outage of 15s")
	})
}

// Re-entry has the outage limit of an attempt: while the store does not take the count, it
// gives up after max(TTL, 15 s), though renewals work.
func TestReentryInAnOutageGivesUp(t *testing.T) {
	for ttl, want := range map[time.Duration]time.Duration{time.Second: minOutage, time.Minute: time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t, counting, WithTTL(ttl))
			b.store.from(opSetHolds, fail(errRefused))
			l := b.lock(t.Context(), "k")
			_, err := b.Lock(l.Context(t.Context()), "k")
			wantErr(t, err, ErrUnavailable, "the count cannot be written", ErrLost)
			wantBetween(t, "Lock gave up at", b.at(), want, want+time.Second, "max(TTL, 15s)")
			if n := len(b.store.sent(opSetHolds)); n > int(want/(100*time.Millisecond)) {
				t.Errorf("%d counts sent in %v, want pauses of up to 500ms between", n, b.at())
			}
		})
	}
}

// A timeout of the Locker's own is no error of the caller's context.
func TestOwnTimeoutsAreNoContextErrors(t *testing.T) {
	for name, call := range map[string]func(b *bench) error{
		"TryLock": func(b *bench) error {
			b.store.from(opAcquire, hang)
			_, err := b.TryLock(context.Background(), "k")
			return err
		},
		"Lock": func(b *bench) error {
			b.store.from(opAcquire, hang)
			_, err := b.Lock(context.Background(), "k", WithTTL(time.Second))
			return err
		},
		"Unlock": func(b *bench) error {
			l := b.lock(context.Background(), "k")
			b.store.from(opRelease, hang)
			return l.Unlock(context.Background())
		},
		"Renew": func(b *bench) error {
			l := b.lock(context.Background(), "k")
			b.store.from(opRenew, hang)
			return l.Renew(context.Background())
		},
		"re-entry": func(b *bench) error {
			l := b.lock(context.Background(), "k")
			b.store.from(opSetHolds, hang)
			_, err := b.TryLock(l.Context(context.Background()), "k")
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, counting)
				wantErr(t, call(b), ErrUnavailable, "the store hangs", context.DeadlineExceeded, context.Canceled)
			})
		})
	}
}

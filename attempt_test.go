package locker

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/distlock/locker/driver"
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
					time.Sleep(late) // on the bubble's clock: the waiter comes so much later
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

// handedOver answers an Acquire that a release has granted the key to an earlier claim,
// for ttl since ago.
func handedOver(ago, ttl time.Duration) step {
	return func(c *command) error {
		c.f.t.Mu.Lock()
		defer c.f.t.Mu.Unlock()
		token, _ := c.f.tokens(c.Key, 1)
		hold := c.f.t.Put(c.Key, "earlier", "earlier", token, ttl-ago)
		c.answer = driver.Answer{Granted: true, Claim: "earlier", Token: hold.Token, Since: time.Now().Add(-ago), TTL: ttl}
		return nil
	}
}

// A grant by a release is the earlier claim's, counts from before that was sent, and is
// renewed to the full TTL when half of it is over.
func TestShortGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, notifying)
		b.store.next(opAcquire, busy(time.Minute, false), busy(time.Minute, false), handedOver(700*time.Millisecond, 2*time.Second))
		waiting := b.locking(t.Context(), "k", WithTTL(30*time.Second))
		b.store.signal("k")
		lease := waiting.wantLease(t)
		granted := b.at()
		if lease.Owner() != "earlier" || lease.Token() == 0 {
			t.Errorf("the lease is of owner %q with token %d, the grant was to the earlier claim", lease.Owner(), lease.Token())
		}
		left := time.Until(lease.Deadline())
		wantBetween(t, "the lease has left", left, 1300*time.Millisecond-22*time.Millisecond, 1300*time.Millisecond-22*time.Millisecond, "2 s from the earlier claim's attempt on, less the margin")
		b.until(granted + 299*time.Millisecond)
		b.wantSent(opRenew, 0, "half of the short grant is not over")
		b.until(granted + 301*time.Millisecond)
		renewed := b.wantSent(opRenew, 1, "half of the short grant is over")
		if renewed[0].ID != "earlier" || renewed[0].TTL != 30*time.Second {
			t.Errorf("renewed was %q for %v", renewed[0].ID, renewed[0].TTL)
		}
		if left := time.Until(lease.Deadline()); left < 29*time.Second {
			t.Errorf("the lease has %v left after its first renewal, of a TTL of 30s", left)
		}
		b.until(granted + 9*time.Second)
		b.wantSent(opRenew, 1, "the next is due after a third of the TTL")
		b.unlock(lease)
		released := b.wantSent(opRelease, 1, "one release")
		if released[0].ID != "earlier" {
			t.Errorf("released was %q", released[0].ID)
		}
	})
}

// A section that is over before costs no renewal.
func TestShortGrantOfAShortSection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, notifying)
		b.store.next(opAcquire, busy(time.Minute, false), busy(time.Minute, false), handedOver(0, 2*time.Second))
		waiting := b.locking(t.Context(), "k")
		b.store.signal("k")
		lease := waiting.wantLease(t)
		b.until(b.at() + 900*time.Millisecond)
		b.unlock(lease)
		b.until(b.at() + time.Minute)
		b.wantSent(opRenew, 0, "the section was over before")
		b.wantIdle("the lease was unlocked")
	})
}

// A lease on a short grant that cannot be renewed is lost when that is over; one that
// comes too late is no lease, and is released.
func TestShortGrantEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, notifying)
		b.store.next(opAcquire, busy(time.Minute, false), busy(time.Minute, false),
			handedOver(3*time.Second, 2*time.Second), handedOver(time.Second/2, 2*time.Second))
		b.store.from(opRenew, fail(errRefused))
		waiting := b.locking(t.Context(), "k")
		b.store.signal("k")
		lease := waiting.wantLease(t)
		granted := b.at()
		b.until(granted + 1477*time.Millisecond)
		if lostIsClosed(lease) {
			t.Errorf("the lease is lost %v after the grant", b.at()-granted)
		}
		b.until(granted + 1479*time.Millisecond)
		if !lostIsClosed(lease) {
			t.Errorf("the lease is not lost %v after the grant", b.at()-granted)
		}
		wantErr(t, lease.Unlock(t.Context()), ErrLost, "it was lost")
	})
}

// A driver is told that a short grant will do only where the lease renews by itself
// without a limit.
func TestShortGrantWillDo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, notifying)
		for name, c := range map[string]struct {
			opts  []LockOption
			short bool
		}{
			"default":     {nil, true},
			"no renewal":  {[]LockOption{WithoutRenewal()}, false},
			"some":        {[]LockOption{WithMaxRenewals(3)}, false},
			"a limit":     {[]LockOption{WithMaxHold(time.Hour)}, false},
			"a short TTL": {[]LockOption{WithTTL(MinTTL)}, true},
		} {
			b.unlock(b.lock(t.Context(), name, c.opts...))
			sent := b.store.sent(opAcquire)
			if last := sent[len(sent)-1]; last.Short != c.short {
				t.Errorf("%s: a short grant will do: %v, want %v", name, last.Short, c.short)
			}
		}
	})
}

// A limit of the caller's ends a short grant when it is over, and no sooner.
func TestLimitOfAShortGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, notifying)
		b.store.next(opAcquire, busy(time.Minute, false), busy(time.Minute, false), handedOver(0, 2*time.Second))
		waiting := b.locking(t.Context(), "k", WithMaxHold(time.Second))
		b.store.signal("k")
		lease := waiting.wantLease(t)
		granted := b.at()
		b.wantSent(opRelease, 0, "the grant is taken")
		b.until(granted + 999*time.Millisecond)
		if err := lease.Err(); err != nil {
			t.Errorf("the lease after 999 ms of 1 s: %v", err)
		}
		b.until(granted + time.Second)
		wantErr(t, lease.Err(), ErrLost, "its limit is reached")
	})
}

// A grant to the claim of an earlier call, with other metadata, is given back.
func TestGrantWithOtherMetadata(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, notifying)
		b.store.next(opAcquire, busy(time.Minute, false), busy(time.Minute, false), handedOver(0, 2*time.Second))
		waiting := b.locking(t.Context(), "k", WithMetadata("job", "own"))
		b.store.signal("k")
		lease := waiting.wantLease(t)
		if id := lease.claim.ID; !strings.Contains(id, "job=own") {
			t.Errorf("the claim is %q, which has not the metadata of the call", id)
		}
		if released := b.wantSent(opRelease, 1, "the earlier claim"); released[0].ID != "earlier" {
			t.Errorf("released was %q", released[0].ID)
		}
		b.unlock(lease)
	})
}

package locker

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/distlock/locker/driver"
	"github.com/distlock/locker/internal/retry"
)

// A watch that opens and ends at once is opened again about once a second, and the
// waiter polls meanwhile.
func TestWatchThatEndsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, notifying)
		b.store.from(opWatch, func(c *command) error {
			err := c.apply()
			time.AfterFunc(0, c.f.endWatches)
			return err
		})
		b.store.seize("k", "stranger", time.Hour)
		b.locking(t.Context(), "k", WithWait(10*time.Second))
		b.until(10*time.Second - 1)
		if n := len(b.store.sent(opAcquire)); n > 10*100+30 || n < 50 {
			t.Errorf("%d attempts in 10s, want those of a waiter that polls", n)
		}
		if n := len(b.store.sent(opWatch)); n > 11 {
			t.Errorf("%d watches opened in 10s, want one a second", n)
		}
		b.until(20 * time.Second)
	})
}

// The clean-ups of attempts that may have been applied share one back-off: a store that
// resets every connection is sent a release now and then, not a loop of them for each
// attempt.
func TestCleanUpsShareABackOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, plain)
		b.store.from(opAcquire, fail(errReset))
		b.store.from(opRelease, fail(errReset))
		_, err := b.Lock(t.Context(), "k", WithTTL(time.Second))
		wantErr(t, err, ErrUnavailable, "the store resets every connection")
		attempts, releases := len(b.store.sent(opAcquire)), len(b.store.sent(opRelease))
		if releases > attempts {
			t.Errorf("%d releases for %d attempts, want no more than attempts", releases, attempts)
		}
		b.until(b.at() + 20*time.Second)
		b.wantIdle("the TTL of what may have been granted has ended")
	})
	synctest.Test(t, func(t *testing.T) {
		// Once the store is back, all is given back soon.
		b := newBench(t, plain)
		b.store.from(opAcquire, fail(errReset))
		b.store.from(opRelease, fail(errReset))
		for i := range 500 {
			_, _ = b.TryLock(t.Context(), fmt.Sprint(i))
		}
		b.until(3 * time.Second)
		b.store.from(opRelease, delay(20*time.Millisecond, obey))
		b.until(3*time.Second + retry.PauseMax + retry.RepeatAfter + 2*time.Second)
		b.wantIdle("all was given back")
	})
}

// A clean-up whose answer does not come holds those of other keys up for no longer than it
// takes to see that it is late.
func TestHungCleanUpsHoldNoOtherUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, plain)
		b.store.from(opAcquire, failAfter(errReset))
		b.store.from(opRelease, func(c *command) error {
			if c.Key != "free" {
				return hang(c)
			}
			return c.apply()
		})
		for _, key := range []string{"a", "b", "c", "free"} {
			_, err := b.TryLock(t.Context(), key)
			wantErr(t, err, ErrUnavailable, "the reply is lost")
		}
		b.until(releaseTimeout)
		if owner := b.store.held("free"); owner != "" {
			t.Errorf("%q holds the key at %v, want it given back beside three clean-ups that hang", owner, b.at())
		}
		if n := b.store.atOnce(opRelease); n > 4 {
			t.Errorf("%d releases at once, want one for each key at most", n)
		}
		b.store.from(opRelease, nil)
		b.until(DefaultTTL + commandTimeout + time.Second)
		b.wantIdle("all was given back")
	})
}

// A store that answers slowly, but answers, is asked to clean up many keys at a time.
func TestCleanUpsOfASlowStore(t *testing.T) {
	for _, far := range []time.Duration{retry.LateAfter - 50*time.Millisecond, retry.LateAfter + 50*time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t, plain)
			b.store.from(opAcquire, failAfter(errReset))
			b.store.from(opRelease, delay(far, obey))
			const n = 200
			for i := range n {
				_, err := b.TryLock(t.Context(), fmt.Sprint(i))
				wantErr(t, err, ErrUnavailable, "the reply is lost")
			}
			b.until(10 * time.Second)
			for i := range n {
				if owner := b.store.held(fmt.Sprint(i)); owner != "" {
					t.Fatalf("%q holds key %d at %v, want all %d given back by a store that takes %v", owner, i, b.at(), n, far)
				}
			}
			if most := b.store.atOnce(opRelease); most > 2*retry.AtOnce {
				t.Errorf("%d releases at once, want some %d", most, retry.AtOnce)
			}
			b.wantIdle("all was given back")
		})
	}
}

// Waiters with names of their own ask the store no more often than others: in turn.
func TestNamedWaitersAskInTurn(t *testing.T) {
	asked := func(name func(int) context.Context) (n int) {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t, counting)
			b.store.seize("k", "stranger", time.Hour)
			for i := range 100 {
				b.locking(name(i), "k", WithWait(10*time.Second))
			}
			b.until(20 * time.Second)
			n = len(b.store.sent(opAcquire))
		})
		return n
	}
	unnamed := asked(func(int) context.Context { return context.Background() })
	named := asked(func(i int) context.Context { return ContextWithOwner(context.Background(), fmt.Sprint("owner", i)) })
	if named > unnamed*5/4 {
		t.Errorf("%d attempts of named waiters in 10s, %d of unnamed ones; want about as many", named, unnamed)
	}
}

// A waiter behind others joins the hold that its owner has from another process, as soon
// as the head of the queue is told of it.
func TestWaiterJoinsItsOwnersHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, counting)
		b.store.seize("k", "stranger", time.Hour)
		bob := b.locking(ContextWithOwner(t.Context(), "bob"), "k")
		ann := b.locking(ContextWithOwner(t.Context(), "ann"), "k")
		b.until(5 * time.Second)
		b.store.seize("k", "ann", time.Hour) // by another process
		ann.wantEnd(t, 5*time.Second, 5*time.Second+pollMax, "its owner holds the key")
		if bob.over() {
			t.Error("bob has the lock, want it held by ann")
		}
		b.unlock(ann.wantLease(t))
	})
}

// A refusal that tells nothing of the holder makes the waiter poll at its usual pace, and
// one that claims an endless TTL is no reason not to look.
func TestRefusalsOfUnknownLength(t *testing.T) {
	for name, c := range map[string]struct {
		k           kind
		answer      driver.Answer
		least, most int // attempts in 10 s
	}{
		"zero, polling":     {plain, driver.Answer{}, 100, 400},
		"zero, watching":    {notifying, driver.Answer{}, 10, 16},
		"endless, polling":  {plain, driver.Answer{Remaining: math.MaxInt64}, 100, 400},
		"endless, watching": {notifying, driver.Answer{Remaining: math.MaxInt64}, 10, 16},
		"negative":          {plain, driver.Answer{Remaining: -time.Hour}, 100, 400},
		"no wake-up":        {notifying, driver.Answer{NoWakeUp: true}, 100, 400},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, c.k)
				b.store.from(opAcquire, func(cmd *command) error {
					cmd.f.t.Mu.Lock()
					defer cmd.f.t.Mu.Unlock()
					cmd.answer = c.answer
					return nil
				})
				_, err := b.Lock(t.Context(), "k", WithWait(10*time.Second))
				wantErr(t, err, ErrNotAcquired, "it was refused each time")
				if n := len(b.store.sent(opAcquire)); n < c.least || n > c.most {
					t.Errorf("%d attempts in 10s, want %d to %d", n, c.least, c.most)
				}
			})
		})
	}
}

// A waiter that gives up within a second of this process's last success gives up its watch
// at once, and with it the place that the driver keeps: the next release is not wasted
// on it.
func TestGivingUpSoonAfterASuccess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, notifying)
		b.store.seize("k", "stranger", time.Hour)
		waiting := b.locking(t.Context(), "k")
		b.store.free("k")
		b.unlock(waiting.wantLease(t)) // its watch lingers
		b.store.seize("k", "stranger", time.Hour)
		ctx, cancel := context.WithCancel(t.Context())
		again := b.locking(ctx, "k")
		if n := len(b.store.sent(opWatch)); n != 1 {
			t.Fatalf("%d watches opened, want 1: the first one lingers", n)
		}
		cancel()
		<-again.done
		synctest.Wait()
		if n := b.store.watching(); n != 0 {
			t.Errorf("%d watches are open after the last waiter gave up, want none", n)
		}
	})
}

// However often a count is not answered, one correction of it waits in the background.
func TestCorrectionsDoNotPileUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, counting)
		b.store.from(opSetHolds, fail(errReset))
		l := b.lock(t.Context(), "k")
		_, err := b.Lock(l.Context(t.Context()), "k", WithWait(14*time.Second))
		wantErr(t, err, ErrUnavailable, "the count is not answered")
		b.store.from(opSetHolds, obey)
		sent := len(b.store.sent(opSetHolds))
		b.until(b.at() + 10*time.Second)
		if n := len(b.store.sent(opSetHolds)) - sent; n != 1 {
			t.Errorf("%d corrections sent, want 1", n)
		}
		b.unlock(l)
		b.wantIdle("the lease is unlocked")
	})
}

// The store has a claim with a margin for longer than its holder. A release goes on for as long, and one that was applied after the
// Deadline without a reply is no loss.
func TestReleaseWithinTheMargin(t *testing.T) {
	const ttl, margin = 20 * time.Second, 10 * time.Second // the Deadline is at 9.798 s
	for name, c := range map[string]struct {
		unlock, up time.Duration
		want       error
		step       func() step // from up on
	}{
		"an outage beyond the Deadline": {8 * time.Second, 15 * time.Second, ErrUnavailable, func() step { return obey }},
		"a reply is lost": {9500 * time.Millisecond, 10 * time.Second, nil, func() step {
			lost := false
			return func(c *command) error {
				if lost {
					return obey(c)
				}
				lost = true
				return failAfter(errReset)(c)
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, plain, WithTTL(ttl), WithMargin(margin), WithoutRenewal())
				l, then := b.lock(t.Context(), "k"), c.step()
				b.store.from(opRelease, func(cmd *command) error {
					if cmd.at < c.up {
						return errRefused
					}
					return then(cmd)
				})
				b.until(c.unlock)
				if err := l.Unlock(t.Context()); !errors.Is(err, c.want) {
					t.Errorf("Unlock: %v, want %v", err, c.want)
				}
				b.until(c.up + 2*time.Second)
				if b.store.held("k") != "" {
					t.Error("the key is held, want it free: the store answers again")
				}
				b.wantEvents(map[EventKind]int{EventAcquired: 1, EventReleased: 1}, "it was released")
			})
		})
	}
}

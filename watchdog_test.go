package locker

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// A limit ends the lease, with the limit as the cause, while at least part of the
// TTL is left; nothing is renewed any more, and Unlock still frees the key early.
func TestLimits(t *testing.T) {
	const ttl = 30 * time.Second
	for name, c := range map[string]struct {
		opts     []LockOption
		cause    error
		at       time.Duration
		renewals int
		left     time.Duration
	}{
		"MaxHold before the first renewal": {[]LockOption{WithMaxHold(time.Second)}, ErrMaxHold, time.Second, 0, 28 * time.Second},
		"MaxHold after many renewals":      {[]LockOption{WithMaxHold(95 * time.Second)}, ErrMaxHold, 95 * time.Second, 9, 24 * time.Second},
		"MaxHold at a renewal":             {[]LockOption{WithMaxHold(20*time.Second - 1)}, ErrMaxHold, 20*time.Second - 1, 1, 19 * time.Second},
		"MaxHold of an instant":            {[]LockOption{WithMaxHold(1)}, ErrMaxHold, 1, 0, 29 * time.Second},
		"MaxHold without renewal":          {[]LockOption{WithMaxHold(5 * time.Second), WithoutRenewal()}, ErrMaxHold, 5 * time.Second, 0, 24 * time.Second},
		"MaxRenewals":                      {[]LockOption{WithMaxRenewals(1)}, ErrMaxRenewals, 20 * time.Second, 1, 19 * time.Second},
		"more MaxRenewals":                 {[]LockOption{WithMaxRenewals(3)}, ErrMaxRenewals, 40 * time.Second, 3, 19 * time.Second},
		"both, MaxHold first":              {[]LockOption{WithMaxRenewals(3), WithMaxHold(25 * time.Second)}, ErrMaxHold, 25 * time.Second, 2, 24 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, plain, WithTTL(ttl))
				l := b.lock(t.Context(), "k", c.opts...)
				ctx := l.Context(t.Context())
				<-ctx.Done()
				wantBetween(t, "the context ended at", b.at(), c.at, c.at, "that is the limit")
				for what, err := range map[string]error{"Cause": context.Cause(ctx), "Renew": l.Renew(t.Context())} {
					wantErr(t, err, ErrLost, what)
					wantErr(t, err, c.cause, what+" tells the limit")
				}
				if !lostIsClosed(l) {
					t.Error("Lost is open, want closed: the limit was reached")
				}
				b.wantSent(opRenew, c.renewals, "none after the limit")
				if left := time.Until(l.Deadline()); left < c.left {
					t.Errorf("%v left, want %v at least: time to roll back", left, c.left)
				}
				if b.store.held("k") == "" {
					t.Error("nobody holds the key, want it held until Unlock: the section is still rolling back")
				}
				b.until(c.at + 15*time.Second)
				b.wantSent(opRenew, c.renewals, "none after the limit")
				wantErr(t, l.Unlock(t.Context()), ErrLost, "Unlock says that the lease was lost")
				if held := b.store.held("k"); held != "" {
					t.Errorf("%s holds the key, want nobody: Unlock frees it early", held)
				}
				b.wantEvents(map[EventKind]int{EventAcquired: 1, EventRenewed: c.renewals, EventLost: 1}, "lost once, at the limit")
				b.wantIdle("the lease is unlocked")
			})
		})
	}
}

// The renewals of Renew itself are the caller's own: they do not count.
func TestRenewIsNoAutomaticRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, plain, WithTTL(30*time.Second))
		l := b.lock(t.Context(), "k", WithMaxRenewals(1))
		b.until(time.Second)
		for range 5 {
			if err := l.Renew(t.Context()); err != nil {
				t.Fatalf("Renew: %v, want nil", err)
			}
		}
		<-l.Lost()
		wantBetween(t, "lost at", b.at(), 20*time.Second, 20*time.Second, "one automatic renewal at 10s, another one due 10s later")
	})
}

// A release disarms renewal first: none is sent after it, even when the release
// hangs or fails.
func TestNoRenewalAfterUnlock(t *testing.T) {
	for name, s := range map[string]step{"obeyed": obey, "hanging": hang, "failing": fail(errReset)} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, plain, WithTTL(3*time.Second))
				b.store.from(opRelease, s)
				l := b.lock(t.Context(), "k")
				b.until(3500 * time.Millisecond)
				b.wantSent(opRenew, 3, "one a second")
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				_ = l.Unlock(ctx)
				b.until(time.Minute)
				b.wantSent(opRenew, 3, "none after Unlock")
				if lostIsClosed(l) {
					t.Error("Lost is closed, want open: Unlock never closes it")
				}
				if got := b.events()[EventLost]; len(got) != 0 {
					t.Errorf("%d events Lost, want none: the lease was unlocked in time", len(got))
				}
			})
		})
	}
}

// A renewal that was on its way when the lease was unlocked changes nothing,
// whatever it is told.
func TestRenewalInFlightAtUnlock(t *testing.T) {
	for name, s := range map[string]step{
		"reaches the store afterwards": delay(500*time.Millisecond, obey), // it is told ErrLost
		"is answered afterwards":       replyAfter(500 * time.Millisecond),
		"fails afterwards":             delay(500*time.Millisecond, fail(errReset)),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, plain, WithTTL(3*time.Second))
				b.store.next(opRenew, s)
				l := b.lock(t.Context(), "k")
				b.until(1100 * time.Millisecond)
				deadline := l.Deadline()
				b.unlock(l)
				next := b.lock(t.Context(), "k", WithoutRenewal())
				b.until(3 * time.Second)
				b.wantSent(opRenew, 1, "the one that was on its way")
				if !l.Deadline().Equal(deadline) || lostIsClosed(l) || lostIsClosed(next) {
					t.Error("the late renewal moved a deadline or lost a lease, want no effect")
				}
				b.wantEvents(map[EventKind]int{EventAcquired: 2, EventReleased: 1}, "the late renewal is no event")
				<-next.Lost()
				const end = 1100*time.Millisecond + 2968*time.Millisecond
				wantBetween(t, "the next lease was lost at", b.at(), end, end, "a late renewal extends nobody's lease")
			})
		})
	}
}

// One shard that hangs delays no renewal of another, and shares no batch with it.
func TestShardsAreRenewedApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, sharding, WithTTL(30*time.Second))
		var good, bad []*Lease
		for _, name := range []string{"1", "2", "3"} {
			good = append(good, b.lock(t.Context(), "good/"+name))
			bad = append(bad, b.lock(t.Context(), "bad/"+name))
		}
		b.store.from(opRenew, func(c *command) error {
			if shardOf(c.Key) == "bad" {
				return hang(c)
			}
			return obey(c)
		})
		b.until(45 * time.Second)
		shards := make(map[int]string) // of each call
		for _, r := range b.store.sent(opRenew) {
			shard := shardOf(r.Key)
			if s, ok := shards[r.call]; ok && s != shard {
				t.Errorf("a batch has keys of %q and %q, want one shard", s, shard)
			}
			shards[r.call] = shard
			if shard == "good" {
				wantBetween(t, "a renewal after", r.at%(10*time.Second), 0, 0, "every 10s: the other shard is no concern of this one")
			}
		}
		for i := range good {
			if lostIsClosed(good[i]) {
				t.Errorf("lease %d of the good shard is lost, want it kept", i)
			}
			if !lostIsClosed(bad[i]) {
				t.Errorf("lease %d of the hanging shard is kept, want it lost", i)
			}
		}
	})
}

// The end of a batch in which one claim hangs is nothing to a claim that was answered: by then its next renewal is under way.
func TestBatchEndsAfterItsAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, plain, WithTTL(30*time.Second), WithRenewInterval(time.Second))
		b.store.from(opRenew, func(c *command) error {
			switch {
			case c.Key == "hangs":
				return hang(c)
			case c.at >= 3*time.Second:
				return replyAfter(1050 * time.Millisecond)(c)
			}
			return obey(c)
		})
		l := b.lock(t.Context(), "k")
		b.until(time.Millisecond) // so that l is renewed first
		hangs := b.lock(t.Context(), "hangs")
		b.until(4100 * time.Millisecond) // the batch of the first second was given up at 4 s; the next renewal of l was answered at 4.05 s
		for _, e := range b.events()[EventRenewFailed] {
			if e.Key == "k" {
				t.Errorf("a renewal of %q has failed: %v", e.Key, e.Err)
			}
		}
		const want = 3*time.Second + 29698*time.Millisecond
		wantBetween(t, "the deadline is at", l.Deadline().Sub(b.start), want, want, "the renewal of 3 s has succeeded")
		b.unlock(l)
		b.unlock(hangs)
	})
}

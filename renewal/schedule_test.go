package renewal

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

const s = time.Second

func TestCadence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 0, nil, nil)
		c := b.add("c", terms())
		b.until(35 * s)
		b.wantTimes(c, "one renewal per Interval", 10*s, 20*s, 30*s)
		b.wantDeadline(c, 30*s+ttl, "the last renewal was sent at 30s")
		b.wantNoLoss("every renewal went through")
		if n := b.count(&b.renewed); n != 3 {
			t.Errorf("Renewed was called %d times, want 3: once per renewal", n)
		}
		if b.Expired(&c.Entry) {
			t.Error("Expired = true, want false: the claim is kept")
		}
	})
}

// The deadline counts from when the renewal was sent, not from its answer.
func TestSlowAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 0, func(_ context.Context, _ string, _ []*claim, answer func(int, error)) {
			time.Sleep(2 * s)
			answer(0, nil)
		}, nil)
		c := b.add("c", terms())
		b.until(11 * s)
		b.wantDeadline(c, ttl, "the renewal sent at 10s is not answered yet")
		b.until(13 * s)
		b.wantDeadline(c, 10*s+ttl, "the renewal answered at 12s was sent at 10s")
		b.until(25 * s)
		b.wantTimes(c, "the next renewal is due an Interval after the last was sent", 10*s, 20*s)
		b.Stop(&c.Entry)
	})
}

func TestFirstRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 0, nil, nil)
		grant := func(age time.Duration) *claim {
			tm := terms()
			tm.Shard = age.String() // so that none is taken along
			tm.Deadline = time.Now().Add(ttl - age)
			return b.add("granted "+age.String()+" ago", tm)
		}
		fresh, old, overdue, future := grant(0), grant(4*s), grant(20*s), grant(-4*s)
		b.until(11 * s)
		b.wantTimes(fresh, "an Interval after it was sent", 10*s)
		b.wantTimes(old, "an Interval after it was sent, 4s before Add", 6*s)
		b.wantTimes(overdue, "it was due 10s before Add, so at once", 0, 10*s)
		b.wantTimes(future, "an Interval after Add at the latest", 10*s)
	})
}

func TestRetryUntilDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 0, all(errDown), nil)
		c := b.add("c", terms())
		b.until(2 * ttl)
		b.wantLost(c, ErrExpired, ttl)
		got := b.times(c)
		if got[0] != interval {
			t.Fatalf("first renewal at %v, want %v", got[0], interval)
		}
		// From 10s on, 15s of trouble with at most 4.5s between tries.
		if len(got) < 4 || len(got) > 40 {
			t.Errorf("%d tries, at %v, want 4 to 40: a retry per 0.15 to 0.45 Interval, closer towards the end", len(got), got)
		}
		for i, at := range got[1:] {
			gap, left := at-got[i], ttl-got[i]
			mean := min(interval*3/10, left/2)
			if gap < max(mean/2, minRetry) || gap > max(mean*3/2, minRetry)+1 {
				t.Errorf("retry %v after the failure at %v, want 0.5 to 1.5 times %v", gap, got[i], mean)
			}
			if at >= ttl {
				t.Errorf("try at %v, want none at or after the deadline %v", at, ttl)
			}
		}
		if n := b.count(&b.failed); n != len(got) {
			t.Errorf("Failed was called %d times, want %d: once per failed try", n, len(got))
		}
	})
}

func TestRetryHasJitter(t *testing.T) {
	seen := map[int64]bool{}
	for range 100 {
		d := retryAfter(int64(interval), int64(ttl))
		if d < int64(interval)*15/100 || d > int64(interval)*45/100 {
			t.Fatalf("retry after %v, want 0.15 to 0.45 of %v", time.Duration(d), interval)
		}
		seen[d] = true
	}
	if len(seen) < 50 {
		t.Errorf("%d different waits in 100, want nearly 100: jitter spreads the retries", len(seen))
	}
	if d := retryAfter(int64(interval), int64(s)); d > int64(s)*3/4 {
		t.Errorf("retry after %v with 1s left, want 0.75s at most: one more try must fit in", time.Duration(d))
	}
	if d := retryAfter(int64(time.Millisecond), int64(time.Millisecond)); d != int64(minRetry) {
		t.Errorf("retry after %v, want %v at least", time.Duration(d), minRetry)
	}
}

func TestRecovery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var down atomic.Bool
		down.Store(true)
		b := newBench(t, 0, func(_ context.Context, _ string, _ []*claim, answer func(int, error)) {
			if down.Load() {
				answer(0, errDown)
			} else {
				answer(0, nil)
			}
		}, nil)
		c := b.add("c", terms())
		b.until(22 * s)
		down.Store(false)
		b.until(29 * s)
		at := b.times(c)
		ok := at[len(at)-1]
		b.wantDeadline(c, ok+ttl, "the last try went through")
		b.until(ok + interval)
		if at = b.times(c); at[len(at)-1] != ok+interval {
			t.Errorf("renewed at %v, want one at %v: back to one per Interval after the success", at, ok+interval)
		}
		b.wantNoLoss("the store came back before the deadline")
	})
}

func TestFinalError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 0, all(errGone), nil)
		c := b.add("c", terms())
		b.until(2 * ttl)
		b.wantLost(c, errGone, 10*s)
		b.wantTimes(c, "a final error is not tried again", 10*s)
		if n := b.count(&b.failed); n != 0 {
			t.Errorf("Failed was called %d times, want 0: it is for what is tried again", n)
		}
		if b.Stop(&c.Entry) {
			t.Error("Stop = true, want false: the claim was lost before")
		}
	})
}

func TestMaxRenewals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 0, nil, nil)
		tm := terms()
		tm.MaxRenewals = 2
		c := b.add("c", tm)
		b.until(2 * ttl)
		b.wantTimes(c, "two renewals are allowed", 10*s, 20*s)
		b.wantLost(c, ErrMaxRenewals, 30*s)
		b.wantDeadline(c, 20*s+ttl, "the second renewal was sent at 20s")
	})
}

// Only successes count, and an Extend puts off the end with the next renewal.
func TestMaxRenewalsCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		b := newBench(t, 0, func(_ context.Context, _ string, _ []*claim, answer func(int, error)) {
			if n++; n == 1 {
				answer(0, errDown)
			} else {
				answer(0, nil)
			}
		}, nil)
		tm := terms()
		tm.MaxRenewals = 1
		c := b.add("c", tm)
		b.until(16 * s)
		at := b.times(c)
		if len(at) != 2 {
			t.Fatalf("tried at %v, want twice: the failure at 10s does not count", at)
		}
		if !b.Extend(&c.Entry, time.Now()) {
			t.Fatal("Extend = false, want true: the claim is kept")
		}
		b.until(2 * ttl)
		b.wantLost(c, ErrMaxRenewals, 26*s)
	})
}

// The last renewal may bring the end nearer than it was, before that of others.
func TestMaxRenewalsEndsSooner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 0, nil, nil)
		b.add("other", Terms{Deadline: time.Now().Add(25 * s)})
		tm := terms()
		tm.MaxRenewals = 1
		c := b.add("c", tm)
		b.until(24 * s)
		b.wantLost(c, ErrMaxRenewals, 20*s)
	})
}

func TestMaxHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 0, nil, nil)
		tm := terms()
		tm.Limit = time.Now().Add(25 * s)
		c := b.add("c", tm)
		b.until(2 * ttl)
		b.wantTimes(c, "renewals go on until the limit at 25s", 10*s, 20*s)
		b.wantLost(c, ErrMaxHold, 25*s)
	})
}

func TestNoRenewalAtTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 0, nil, nil)
		tm := terms()
		tm.Limit = time.Now().Add(20 * s)
		c := b.add("c", tm)
		b.until(2 * ttl)
		b.wantTimes(c, "the one due at 20s is due at the limit", 10*s)
		b.wantLost(c, ErrMaxHold, 20*s)
	})
}

// A limit beyond a deadline that nothing renews is not what ended the claim.
func TestExpiredBeforeLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 0, all(errDown), nil)
		tm := terms()
		tm.Limit = time.Now().Add(ttl + s)
		c := b.add("c", tm)
		b.until(2 * ttl)
		b.wantLost(c, ErrExpired, ttl)
	})
}

func TestNeverRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 0, nil, nil)
		tm := terms()
		tm.Interval = 0
		tm.MaxRenewals = 1
		c := b.add("c", tm)
		b.until(20 * s)
		if !b.Extend(&c.Entry, time.Now()) {
			t.Fatal("Extend = false, want true: the claim is kept")
		}
		b.wantDeadline(c, 50*s, "extended at 20s")
		b.until(2 * ttl)
		b.wantTimes(c, "Interval 0 is only watched")
		b.wantLost(c, ErrExpired, 50*s)
	})
}

func TestMisuse(t *testing.T) {
	wantPanic := func(why string, f func()) {
		t.Helper()
		defer func() {
			t.Helper()
			if recover() == nil {
				t.Errorf("no panic, want one: %s", why)
			}
		}()
		f()
	}
	wantPanic("Config without functions", func() { New(Config[int]{}) })
	b := newBench(t, 0, nil, nil)
	c := b.add("c", terms())
	b.Stop(&c.Entry)
	wantPanic("an Entry is added once", func() { b.Add(&c.Entry, c, terms()) })
	var e Entry[*claim]
	if b.Stop(&e) || b.Expired(&e) || b.Extend(&e, time.Now()) || b.Fail(&e, errors.ErrUnsupported) || !b.Deadline(&e).IsZero() {
		t.Error("an Entry that was never added is kept or lost, want neither")
	}
}

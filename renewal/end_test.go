package renewal

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func TestStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 0, nil, nil)
		c := b.add("c", terms())
		b.until(15 * s)
		if !b.Stop(&c.Entry) {
			t.Fatal("Stop = false, want true: the claim was kept")
		}
		if b.Stop(&c.Entry) {
			t.Error("second Stop = true, want false: the first ended it")
		}
		b.until(2 * ttl)
		b.wantTimes(c, "none after Stop at 15s", 10*s)
		b.wantNoLoss("it was stopped")
		if b.Expired(&c.Entry) || b.Extend(&c.Entry, time.Now()) || b.Fail(&c.Entry, errGone) {
			t.Error("a stopped claim expired, was extended or failed; want none of it")
		}
	})
}

// Whatever a renewal under way at Stop brings, it changes nothing.
func TestStopInFlight(t *testing.T) {
	for _, answer := range []error{nil, errDown, errGone} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t, 0, func(_ context.Context, _ string, _ []*claim, say func(int, error)) {
				time.Sleep(2 * s)
				say(0, answer)
			}, nil)
			c := b.add("c", terms())
			b.until(11 * s)
			if !b.Stop(&c.Entry) {
				t.Fatal("Stop = false, want true: the claim was kept")
			}
			b.until(2 * ttl)
			b.wantDeadline(c, ttl, "an answer after Stop is ignored")
			b.wantTimes(c, "none after Stop", 10*s)
			b.wantNoLoss("it was stopped")
			if b.count(&b.renewed)+b.count(&b.failed) != 0 {
				t.Error("Renewed or Failed was called for an answer after Stop, want neither")
			}
		})
	}
}

// Stop, and the limit, hold for a batch that is collected but not sent yet.
func TestEndBeforeSend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 0, nil, nil)
		stop := b.add("stop", terms())
		tm := terms()
		tm.Limit = time.Now().Add(interval)
		limit, stay := b.add("limit", tm), b.add("stay", terms())
		time.Sleep(interval - s)
		b.Scheduler.mu.Lock()
		due := b.collect(stop.group, b.now()+int64(s))
		b.running++
		b.Scheduler.mu.Unlock()
		b.Stop(&stop.Entry)
		time.Sleep(s)
		b.run(due)
		synctest.Wait()
		b.wantTimes(stop, "it was stopped before the batch was sent")
		b.wantTimes(limit, "its limit came before the batch was sent")
		b.wantTimes(stay, "it is still kept", interval)
		b.wantLost(limit, ErrMaxHold, interval)
	})
}

func TestLateSuccess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 0, func(_ context.Context, _ string, _ []*claim, answer func(int, error)) {
			time.Sleep(ttl) // deaf to ctx
			answer(0, nil)
		}, nil)
		c := b.add("c", terms())
		b.until(2 * ttl)
		b.wantLost(c, ErrExpired, ttl)
		b.wantDeadline(c, ttl, "nothing revives a lost claim")
		b.wantTimes(c, "a claim is in one batch at a time, and in none once lost", 10*s)
		if n := b.count(&b.renewed); n != 0 {
			t.Errorf("Renewed was called %d times, want 0: the success came too late", n)
		}
	})
}

// A success that arrives after the deadline, but before the timer's turn.
func TestLateSuccessBeforeTimer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 0, func(_ context.Context, _ string, _ []*claim, answer func(int, error)) {
			time.Sleep(20*s + 1)
			answer(0, nil)
		}, nil)
		c := b.add("c", terms())
		b.until(11 * s)
		b.timer.Stop()
		b.until(2 * ttl)
		b.wantLost(c, ErrExpired, ttl+1)
		b.wantDeadline(c, ttl, "the deadline had passed")
	})
}

// Expired needs no timer: a frozen process may ask before it fires.
func TestExpiredWithoutTimer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tm := terms()
		limited, used := tm, tm
		limited.Limit = time.Now().Add(20 * s)
		used.MaxRenewals = 1
		for _, test := range []struct {
			name  string
			terms Terms
			end   time.Duration
			cause error
		}{
			{"deadline", tm, 10*s + ttl, ErrExpired},
			{"limit", limited, 20 * s, ErrMaxHold},
			{"renewals", used, 20 * s, ErrMaxRenewals},
		} {
			b := newBench(t, 0, nil, nil)
			test.terms.Deadline = time.Now().Add(ttl)
			if !test.terms.Limit.IsZero() {
				test.terms.Limit = time.Now().Add(20 * s)
			}
			c := b.add(test.name, test.terms)
			b.until(10 * s) // one renewal
			b.timer.Stop()
			b.until(test.end - 1)
			if b.Expired(&c.Entry) {
				t.Fatalf("%s: Expired = true 1ns before the end, want false", test.name)
			}
			b.until(test.end)
			b.wantNoLoss("the timer is off and nobody asked")
			if !b.Expired(&c.Entry) {
				t.Fatalf("%s: Expired = false at the end, want true: it looks at the clock", test.name)
			}
			b.wantLost(c, test.cause, test.end)
		}
	})
}

// Expired at the very deadline races with the timer; one Lost comes of it.
func TestExpiredAtDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 0, hang, nil)
		c := b.add("c", terms())
		time.Sleep(ttl)
		if !b.Expired(&c.Entry) {
			t.Error("Expired = false at the deadline, want true")
		}
		synctest.Wait()
		b.wantLost(c, ErrExpired, ttl)
	})
}

func TestExtend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 0, nil, nil)
		c := b.add("c", terms())
		b.until(8 * s)
		if !b.Extend(&c.Entry, time.Now().Add(-2*s)) {
			t.Fatal("Extend = false, want true: the claim is kept")
		}
		b.wantDeadline(c, 6*s+ttl, "the renewal was sent at 6s")
		b.Extend(&c.Entry, b.start)
		b.wantDeadline(c, 6*s+ttl, "a deadline never moves backwards")
		b.until(27 * s)
		b.wantTimes(c, "the next one is due an Interval after the caller's own", 16*s, 26*s)
		b.Extend(&c.Entry, time.Now().Add(time.Hour))
		b.wantDeadline(c, 27*s+ttl, "nothing was sent later than now")
		b.Stop(&c.Entry)
	})
}

func TestExtendInFlight(t *testing.T) {
	for _, test := range []struct {
		answer error
		takes  time.Duration
		next   time.Duration
		why    string
	}{
		{nil, 2 * s, 21 * s, "an Interval after the caller's own at 11s"},
		{errDown, s + s/10, 21 * s, "a failure of what was sent before takes nothing back"},
		{nil, 12 * s, 22 * s, "due at 21s, but in one batch at a time"},
	} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t, 0, func(_ context.Context, _ string, _ []*claim, answer func(int, error)) {
				time.Sleep(test.takes)
				answer(0, test.answer)
			}, nil)
			c := b.add("c", terms())
			b.until(11 * s)
			b.Extend(&c.Entry, time.Now())
			b.until(22 * s)
			b.wantTimes(c, test.why, 10*s, test.next)
			b.wantDeadline(c, 11*s+ttl, "the later of the two counts")
		})
	}
}

func TestExtendTooLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 0, hang, nil)
		c := b.add("c", terms())
		b.until(20 * s)
		b.timer.Stop()
		b.until(ttl)
		if b.Extend(&c.Entry, b.start.Add(29*s)) {
			t.Error("Extend = true, want false: the deadline has come, whenever it was sent")
		}
		b.wantLost(c, ErrExpired, ttl)
		if b.Extend(&c.Entry, time.Now()) {
			t.Error("Extend = true after the loss, want false: nothing revives a claim")
		}
	})
}

func TestFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 0, nil, nil)
		c := b.add("c", terms())
		b.until(5 * s)
		if !b.Fail(&c.Entry, errDown) {
			t.Fatal("Fail = false, want true: the claim was kept")
		}
		b.wantLost(c, errDown, 5*s)
		if b.Fail(&c.Entry, errDown) {
			t.Error("second Fail = true, want false")
		}
		b.until(2 * ttl)
		b.wantTimes(c, "it was lost at 5s")
		b.wantLost(c, errDown, 5*s)
	})
}

func TestManyLostAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 0, nil, nil)
		const n = 3*burst + 1
		for range n {
			b.add("c", Terms{Deadline: time.Now().Add(ttl)})
		}
		b.until(ttl - 1)
		b.wantNoLoss("the deadline has not come")
		b.until(ttl)
		if got := b.count(&b.lost); got != n {
			t.Errorf("%d claims lost at the deadline, want all %d", got, n)
		}
	})
}

package renewal

import (
	"context"
	"errors"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// Ten thousand claims taken evenly over an interval are renewed together.
func TestBatching(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n, maxBatch = 10_000, 100
		b := newBench(t, maxBatch, nil, nil)
		for range n {
			b.add("c", terms())
			time.Sleep(interval / n)
		}
		for i := range time.Duration(3) { // first renewals, and steady state
			b.until(interval * (i + 1))
			before, renewed := len(b.calls), b.count(&b.renewed)
			b.until(interval * (i + 2))
			calls := len(b.calls) - before
			renewals := b.count(&b.renewed) - renewed
			// Full batches take 100 calls; at most an eighth of the claims
			// is renewed twice for being taken along, which takes 113.
			if calls > 2*n/maxBatch {
				t.Errorf("%d calls of Renew in an interval, want at most %d: claims due within Interval/8 share batches of %d", calls, 2*n/maxBatch, maxBatch)
			}
			if renewals < n*9/10 || renewals > n*5/4 {
				t.Errorf("%d renewals in an interval, want about %d: each claim once, an eighth early at most", renewals, n)
			}
		}
		for _, c := range b.calls {
			if len(c.batch) > maxBatch || len(c.batch) == 0 {
				t.Fatalf("a batch of %d, want 1 to %d", len(c.batch), maxBatch)
			}
		}
		b.wantNoLoss("every renewal went through")
	})
}

func TestTakenAlong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 0, nil, nil)
		due := b.add("due", terms())
		other := terms()
		other.Shard = "other"
		shard := b.add("other shard", other)
		long := terms()
		long.Interval = 2 * interval
		long.Deadline = long.Deadline.Add(-interval + s/2)
		class := b.add("twice the interval", long)
		time.Sleep(interval / 8)
		near := b.add("due Interval/8 later", terms())
		time.Sleep(time.Nanosecond)
		far := b.add("due later than that", terms())
		b.until(interval * 9 / 8)
		b.wantTimes(due, "an Interval after Add", interval)
		b.wantTimes(near, "taken along with the first", interval)
		b.wantTimes(far, "not due within Interval/8 of the first")
		b.wantTimes(shard, "due by itself", interval)
		b.wantTimes(class, "due by itself: claims with such different intervals do not mix", interval+s/2)
		for _, c := range b.calls {
			if c.at == interval && c.shard == "" && len(c.batch) != 2 || c.shard == "other" && len(c.batch) != 1 {
				t.Errorf("a batch of %d in shard %q, want due and near alone together", len(c.batch), c.shard)
			}
		}
	})
}

// A used-up claim is not lost early for being taken along.
func TestUsedUpNotTakenAlong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 0, nil, nil)
		time.Sleep(s)
		tm := terms()
		tm.MaxRenewals = 1
		c := b.add("used", tm)
		b.until(12 * s) // renewed at 11s
		d := b.add("other", Terms{Interval: interval, Validity: ttl, Deadline: b.start.Add(10*s + 100*time.Millisecond + ttl)})
		b.until(20*s + 200*time.Millisecond)
		b.wantTimes(d, "due at 20.1s", 20*s+100*time.Millisecond)
		b.wantNoLoss("the second renewal would be due at 21s")
		b.until(22 * s)
		b.wantLost(c, ErrMaxRenewals, 21*s)
	})
}

// Shards come and go; what is remembered of them does not grow without bound.
func TestForgottenShards(t *testing.T) {
	b := newBench(t, 0, nil, nil)
	for i := range 10 * idleGroups {
		tm := terms()
		tm.Shard = strconv.Itoa(i)
		b.Stop(&b.add("c", tm).Entry)
	}
	if n := len(b.groups); n > idleGroups {
		t.Errorf("%d groups are remembered, want at most %d: none has a claim", n, idleGroups)
	}
}

func TestHangingShard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 0, func(ctx context.Context, shard string, batch []*claim, answer func(int, error)) {
			if shard == "dead" {
				time.Sleep(time.Minute) // deaf to ctx
				return
			}
			answer(0, nil)
		}, nil)
		dead, alive := terms(), terms()
		dead.Shard, alive.Shard = "dead", "alive"
		d, a := b.add("dead", dead), b.add("alive", alive)
		b.until(35 * s)
		b.wantTimes(a, "the shard that hangs is not its own", 10*s, 20*s, 30*s)
		b.wantTimes(d, "still in its first batch", 10*s)
		b.wantLost(d, ErrExpired, ttl)
	})
}

func TestHangingBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 1, func(ctx context.Context, _ string, batch []*claim, answer func(int, error)) {
			if batch[0].name == "dead" {
				<-ctx.Done()
				return
			}
			answer(0, nil)
		}, nil)
		d, a := b.add("dead", terms()), b.add("alive", terms())
		b.until(35 * s)
		b.wantTimes(a, "the batch that hangs is not its own", 10*s, 20*s, 30*s)
		b.wantLost(d, ErrExpired, ttl)
		if n := len(b.times(d)); n < 3 {
			t.Errorf("%d tries in 20s of trouble, want 3 or more: a batch is given up after 3s at most", n)
		}
	})
}

func TestTimeout(t *testing.T) {
	for _, test := range []struct {
		validity, want time.Duration
		why            string
	}{
		{30 * s, 3 * s, "3s at most"},
		{9 * s, 2 * s, "a third of the 6s left"},
		{60 * time.Millisecond, 20 * time.Millisecond, "20ms at least"},
	} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t, 0, nil, nil)
			tm := Terms{Interval: test.validity / 3, Validity: test.validity, Deadline: time.Now().Add(test.validity)}
			b.add("c", tm)
			tm.Validity *= 10 // taken along, and less pressing
			tm.Deadline = time.Now().Add(tm.Validity)
			b.add("d", tm)
			b.until(tm.Interval)
			if c := b.calls[0]; c.timeout != test.want || len(c.batch) != 2 {
				t.Errorf("validity %v: batch of %d has %v, want a batch of 2 with %v: %s", test.validity, len(c.batch), c.timeout, test.want, test.why)
			}
		})
	}
}

// Each answer takes effect when it comes, not when the batch returns.
func TestEarlyAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 0, func(_ context.Context, _ string, batch []*claim, answer func(int, error)) {
			for i, c := range batch {
				if c.name != "slow" {
					answer(i, nil)
				}
			}
			time.Sleep(15 * s)
		}, nil)
		slow, quick := b.add("slow", terms()), b.add("quick", terms())
		b.until(10 * s)
		b.wantDeadline(quick, 10*s+ttl, "it is answered")
		b.wantDeadline(slow, ttl, "it is not answered")
		b.until(21 * s)
		b.wantTimes(quick, "answered at 10s, though its batch still runs", 10*s, 20*s)
		b.wantTimes(slow, "not answered, and its batch still runs", 10*s)
	})
}

// What Renew leaves unanswered, in whatever way, counts as failed.
func TestUnanswered(t *testing.T) {
	for _, test := range []struct {
		name string
		end  func(ctx context.Context)
		want func(error) bool
	}{
		{"return", func(context.Context) {}, func(err error) bool { return err == ErrUnanswered }},
		{"timeout", func(ctx context.Context) { <-ctx.Done() }, func(err error) bool {
			return errors.Is(err, ErrUnanswered) && errors.Is(err, context.DeadlineExceeded)
		}},
		{"panic", func(context.Context) { panic("boom") }, func(err error) bool {
			p, ok := errors.AsType[*PanicError](err)
			return ok && p.Value == "boom" && strings.Contains(string(p.Stack), "TestUnanswered") && strings.Contains(err.Error(), "boom")
		}},
		{"goexit", func(context.Context) { runtime.Goexit() }, func(err error) bool { return err == ErrUnanswered }},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				first := true
				b := newBench(t, 0, func(ctx context.Context, _ string, batch []*claim, answer func(int, error)) {
					for i, c := range batch {
						if c.name == "answered" || !first {
							answer(i, nil)
						}
					}
					if first {
						first = false
						test.end(ctx)
					}
				}, nil)
				a, u := b.add("answered", terms()), b.add("unanswered", terms())
				b.until(14 * s)
				if len(b.failed) != 1 || b.failed[0].claim != u || !test.want(b.failed[0].err) {
					t.Errorf("Failed calls: %v, want one, for the unanswered claim, saying why", b.failed)
				}
				b.wantDeadline(a, 10*s+ttl, "its answer came before")
				b.until(19 * s)
				if at := b.times(u); len(at) != 2 {
					t.Errorf("the unanswered claim was tried at %v, want twice: at 10s and again", at)
				}
				b.wantNoLoss("the second try went through")
			})
		})
	}
}

// The first answer counts, and only before Renew returned.
func TestAnswerOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 0, func(_ context.Context, _ string, batch []*claim, answer func(int, error)) {
			if batch[0].name == "twice" {
				answer(0, nil)
				answer(0, errGone)
				return
			}
			go func() {
				time.Sleep(s)
				answer(0, errGone)
			}()
		}, nil)
		tm := terms()
		tm.Shard = "other"
		twice, late := b.add("twice", terms()), b.add("late", tm)
		b.until(11*s + s/5)
		b.wantNoLoss("answers after the first, or after Renew returned, are ignored")
		b.wantDeadline(twice, 10*s+ttl, "the first answer was a success")
		b.wantDeadline(late, ttl, "there was no answer in time")
	})
}

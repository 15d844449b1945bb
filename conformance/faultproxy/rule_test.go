package faultproxy_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/distlock/locker/conformance/faultproxy"
)

func TestDropReply(t *testing.T) {
	t.Parallel()
	protocols(t, func(t *testing.T, protocol int) {
		f, ctx := setUp(t, protocol), t.Context()
		rule := f.DropReply(faultproxy.MatchCommand("INCR"), 2)
		for i := range 3 {
			n, err := f.through.Incr(ctx, f.key).Result()
			if i < 2 && (err == nil || isTimeout(err)) || i == 2 && (err != nil || n != 3) {
				t.Errorf("INCR %d: %d, %v", i, n, err)
			}
			if got := f.value(t); got != i+1 {
				t.Errorf("%d after INCR %d", got, i)
			}
			if got := rule.Fired(); got != min(i+1, 2) {
				t.Errorf("fired %d times after INCR %d", got, i)
			}
		}
		usedUp(t, rule)
	})
}

func TestHangReply(t *testing.T) {
	t.Parallel()
	f, ctx := setUp(t, 3), t.Context()
	f.warmUp(t)
	rule := f.HangReply(faultproxy.MatchContains(f.key), 1)
	if err := f.through.Incr(short(t), f.key).Err(); !isTimeout(err) {
		t.Errorf("INCR: %v, want a timeout", err)
	}
	usedUp(t, rule)
	if n, err := f.through.Incr(ctx, f.key).Result(); err != nil || n != 2 {
		t.Errorf("next INCR: %d, %v", n, err)
	}
}

func TestDuplicate(t *testing.T) {
	t.Parallel()
	protocols(t, func(t *testing.T, protocol int) {
		f, ctx := setUp(t, protocol), t.Context()
		rule := f.Duplicate(faultproxy.MatchCommand("INCR"), 1)
		for _, want := range []int64{2, 3} {
			if n, err := f.through.Incr(ctx, f.key).Result(); err != nil || n != want {
				t.Errorf("INCR: %d, %v; want %d", n, err, want)
			}
		}
		usedUp(t, rule)
		if n := f.Count(faultproxy.MatchCommand("INCR")); n != 2 {
			t.Errorf("the client sent INCR %d times, want 2", n)
		}
	})
}

func TestDelayedCommandOutlivesItsClient(t *testing.T) {
	t.Parallel()
	f, ctx := setUp(t, 3), t.Context()
	f.warmUp(t)
	rule := f.Delay(faultproxy.MatchCommand("INCR"), 0, 600*time.Millisecond)
	if err := f.through.Incr(short(t), f.key).Err(); !isTimeout(err) {
		t.Errorf("INCR: %v, want a timeout", err)
	}
	if err := rule.Wait(ctx, 1); err != nil {
		t.Fatal(err)
	}
	if n := f.value(t); n != 0 {
		t.Errorf("%d before the delay is over", n)
	}
	eventually(t, "INCR arrives", func() bool { return f.value(t) == 1 })

	rule.Stop()
	if n, err := f.through.Incr(ctx, f.key).Result(); err != nil || n != 2 || rule.Fired() != 1 {
		t.Errorf("INCR after Stop: %d, %v; fired %d times", n, err, rule.Fired())
	}
}

func TestStopLetsGoOfWhatIsDelayed(t *testing.T) {
	t.Parallel()
	f := setUp(t, 3)
	f.warmUp(t)
	rule := f.Delay(faultproxy.MatchCommand("INCR"), 1, time.Hour)
	result := make(chan *redis.IntCmd, 1)
	go func() { result <- f.through.Incr(t.Context(), f.key) }()
	usedUp(t, rule)
	if n := f.value(t); n != 0 {
		t.Errorf("%d while the command is delayed", n)
	}
	rule.Stop()
	rule.Stop() // does nothing
	if n, err := (<-result).Result(); err != nil || n != 1 {
		t.Errorf("INCR: %d, %v", n, err)
	}
}

func TestDelayReply(t *testing.T) {
	t.Parallel()
	f, ctx := setUp(t, 3), t.Context()
	rule := f.DelayReply(faultproxy.MatchCommand("INCR"), 0, 50*time.Millisecond)
	result := make(chan *redis.IntCmd, 1)
	start := time.Now()
	go func() { result <- f.through.Incr(ctx, f.key) }()
	if err := rule.Wait(ctx, 1); err != nil {
		t.Fatal(err)
	}
	if n := f.value(t); n != 1 {
		t.Errorf("%d while the reply is held", n)
	}
	if err := (<-result).Err(); err != nil || time.Since(start) < 50*time.Millisecond {
		t.Errorf("INCR: %v after %v", err, time.Since(start))
	}
}

// Replies that are on their way together are late together.
func TestDelayedRepliesTravelTogether(t *testing.T) {
	t.Parallel()
	const delay, n = 200 * time.Millisecond, 20
	f, ctx := setUp(t, 3), t.Context()
	f.DelayReply(faultproxy.MatchCommand("INCR"), 0, delay)
	start := time.Now()
	_, err := f.through.Pipelined(ctx, func(p redis.Pipeliner) error {
		for range n {
			p.Incr(ctx, f.key)
		}
		return nil
	})
	if took := time.Since(start); err != nil || took < delay || took > n*delay/2 {
		t.Errorf("%d commands in a pipeline, each reply %v late, took %v: %v", n, delay, took, err)
	}
}

// Rules for some commands come before those for all, and who watches sees each command.
func TestRulesForSomeComeFirst(t *testing.T) {
	t.Parallel()
	f, ctx := setUp(t, 3), t.Context()
	var seen atomic.Int32
	incr := faultproxy.MatchCommand("INCR")
	f.DelayReply(faultproxy.MatchAny, 0, time.Millisecond)
	reset := f.ResetBefore(incr, 1)
	f.Watch(func(cmd []string) {
		if incr(cmd) {
			seen.Add(1)
		}
	})
	if err := f.through.Incr(ctx, f.key).Err(); err == nil || reset.Fired() != 1 {
		t.Errorf("INCR: %v, and %d resets; want it reset", err, reset.Fired())
	}
	if err := f.through.Incr(ctx, f.key).Err(); err != nil || seen.Load() != 2 {
		t.Errorf("INCR: %v, and %d were seen; want it to succeed, as the second", err, seen.Load())
	}
}

func TestPipeline(t *testing.T) {
	t.Parallel()
	protocols(t, func(t *testing.T, protocol int) {
		f, ctx := setUp(t, protocol), t.Context()
		pipeline := func() (before, hit, after *redis.IntCmd) {
			_, _ = f.through.Pipelined(ctx, func(p redis.Pipeliner) error {
				before, hit, after = p.Incr(ctx, f.key), p.IncrBy(ctx, f.key, 10), p.Incr(ctx, f.key)
				return nil
			})
			return before, hit, after
		}
		dup := f.Duplicate(faultproxy.MatchCommand("INCRBY"), 1)
		a, b, c := pipeline()
		if a.Val() != 1 || b.Val() != 21 || c.Val() != 22 {
			t.Errorf("with a duplicate: %v, %v, %v", a, b, c)
		}
		usedUp(t, dup)

		drop := f.DropReply(faultproxy.MatchCommand("INCRBY"), 1)
		a, b, c = pipeline()
		if a.Val() != 23 || b.Err() == nil || c.Err() == nil {
			t.Errorf("with a reply dropped: %v, %v, %v", a, b, c)
		}
		usedUp(t, drop)
		eventually(t, "the whole pipeline is applied", func() bool { return f.value(t) == 34 })

		cmds, err := f.through.TxPipelined(ctx, func(p redis.Pipeliner) error {
			p.Incr(ctx, f.key)
			p.Incr(ctx, f.key)
			return nil
		})
		if err != nil || cmds[1].(*redis.IntCmd).Val() != 36 {
			t.Errorf("MULTI: %v, %v", cmds, err)
		}
	})
}

func TestNoScriptUsesUpNothing(t *testing.T) {
	t.Parallel()
	f, ctx := setUp(t, 3), t.Context()
	// New to the server, which others share.
	script := redis.NewScript("return redis.call('incr', KEYS[1]) -- " + f.Addr())
	isScript := faultproxy.MatchCommand("EVAL", "EVALSHA")

	dup := f.Duplicate(isScript, 1)
	if n, err := script.Run(ctx, f.through, []string{f.key}).Int(); err != nil || n != 2 {
		t.Errorf("duplicate: %d, %v", n, err)
	}
	if n := f.Count(isScript); n != 2 || dup.Fired() != 1 {
		t.Errorf("%d commands, fired %d times; want EVALSHA and EVAL, and 1", n, dup.Fired())
	}

	script = redis.NewScript("return redis.call('decr', KEYS[1]) -- " + f.Addr())
	drop := f.DropReply(isScript, 1)
	if err := script.Run(ctx, f.through, []string{f.key}).Err(); err == nil || redis.HasErrorPrefix(err, "NOSCRIPT") {
		t.Errorf("reply dropped: %v", err)
	}
	usedUp(t, drop)
	if n := f.value(t); n != 1 {
		t.Errorf("%d, want 1", n)
	}
}

func TestBlackhole(t *testing.T) {
	t.Parallel()
	f, ctx := setUp(t, 3), t.Context()
	f.warmUp(t)
	f.Blackhole(true)
	if err := f.through.Incr(short(t), f.key).Err(); !isTimeout(err) {
		t.Errorf("INCR on the open connection: %v, want a timeout", err)
	}
	if err := f.client(t, 3).Ping(short(t)).Err(); !isTimeout(err) {
		t.Errorf("PING on a new connection: %v, want a timeout", err)
	}
	if n := f.value(t); n != 0 {
		t.Errorf("%d during the blackhole", n)
	}
	f.Blackhole(false)
	eventually(t, "what was sent arrives", func() bool { return f.value(t) == 1 })
	if n, err := f.through.Incr(ctx, f.key).Result(); err != nil || n != 2 {
		t.Errorf("INCR afterwards: %d, %v", n, err)
	}
}

func TestRefuseAndCut(t *testing.T) {
	t.Parallel()
	f, ctx := setUp(t, 3), t.Context()
	blocked := make(chan error, 1)
	block := func() {
		t.Helper()
		f.ResetCounts()
		go func() { blocked <- f.through.BLPop(ctx, 0, f.key+"list").Err() }()
		eventually(t, "BLPOP is sent", func() bool { return f.Count(faultproxy.MatchCommand("BLPOP")) == 1 })
	}
	block()
	f.Refuse(true)
	if err := <-blocked; err == nil || errors.Is(err, redis.Nil) {
		t.Errorf("BLPOP on an open connection: %v", err)
	}
	if err := f.through.Ping(ctx).Err(); err == nil || isTimeout(err) {
		t.Errorf("PING on a new one: %v", err)
	}
	f.Refuse(false)
	block()
	f.Cut()
	if err := <-blocked; err == nil || errors.Is(err, redis.Nil) {
		t.Errorf("BLPOP on a connection cut: %v", err)
	}
	if err := f.through.Ping(ctx).Err(); err != nil {
		t.Errorf("PING after the cut: %v", err)
	}
}

func TestWaitEndsWithItsContext(t *testing.T) {
	t.Parallel()
	f := setUp(t, 3)
	rule := f.Duplicate(faultproxy.MatchCommand("INCR"), 1)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := rule.Wait(ctx, 1); !errors.Is(err, context.Canceled) {
		t.Errorf("Wait: %v", err)
	}
}

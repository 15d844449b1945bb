package benchmarks

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/conformance/faultproxy"
	"github.com/distlock/locker/internal/test/redistest"
	"github.com/distlock/locker/strategy/redlock"
	"github.com/redis/go-redis/v9"
)

// BenchmarkSignals: the time until a holder knows that it was asked to release, that its lock was broken, and that
// its key was deleted by hand (with WithLossDetection), on a near Redis, and the round trips that this takes, counted
// on one that is away. Want 1, 2 and 1 of these, and with redlock 2 and 3: the script that inspects for RequestRelease publishes the request;
// so does the one that breaks for ForceUnlock, and the holder asks; a DEL, which is sent without delay, shows, and the holder asks. What
// servers publish comes without delay.
func BenchmarkSignals(b *testing.B) {
	for _, s := range strategies {
		b.Run(s.name, func(b *testing.B) {
			benchSignals(b, 1, true, func(rdbs []redis.UniversalClient, opts ...locker.Option) (*locker.Client, error) {
				return s.new(rdbs[0], opts...)
			})
		})
	}
	b.Run("redlock", func(b *testing.B) { benchSignals(b, 3, false, redlock.New) })
}

func benchSignals(b *testing.B, servers int, detects bool, open func([]redis.UniversalClient, ...locker.Option) (*locker.Client, error)) {
	b.Helper()
	var near, distant []redis.UniversalClient
	for range servers {
		srv := redistest.Start(b, redistest.WithConfig("--notify-keyspace-events", "Kg$xeh"))
		proxy := faultproxy.Start(b, srv.Addr())
		proxy.Record(false)
		proxy.Delay(faultproxy.MatchAny, 0, away)
		for to, addr := range map[*[]redis.UniversalClient]string{&near: srv.Addr(), &distant: proxy.Addr()} {
			rdb := redis.NewClient(&redis.Options{Addr: addr})
			b.Cleanup(func() { _ = rdb.Close() })
			*to = append(*to, rdb)
		}
	}
	for where, rdbs := range map[string][]redis.UniversalClient{"near": near, "far": distant} {
		l := &signalled{b: b}
		l.holder, l.sender = l.open(open(rdbs)), l.open(open(rdbs))
		what := map[string]func() time.Duration{"request": l.requested, "ForceUnlock": l.broken}
		if detects {
			d := &signalled{b: b}
			d.holder = d.open(open(rdbs, locker.WithLossDetection()))
			what["DEL"] = func() time.Duration { return d.deleted(near[0]) }
		}
		for name, once := range what {
			b.Run(where+"/"+name, func(b *testing.B) {
				another := l.lock("another") // the Locker listens all the time
				another.ReleaseRequested()
				once() // connections are made, and scripts become known
				var all []time.Duration
				for b.Loop() {
					all = append(all, once())
				}
				l.unlock(another)
				slices.Sort(all)
				p50, p99 := all[len(all)/2], all[len(all)*99/100]
				b.ReportMetric(float64(p50.Microseconds())/1000, "p50-ms")
				b.ReportMetric(float64(p99.Microseconds())/1000, "p99-ms")
				if where == "far" {
					b.ReportMetric(float64((p50+away/4)/away), "trips")
				}
			})
		}
	}
}

// signalled is a holder, and who sends it signals.
type signalled struct {
	b              *testing.B
	holder, sender *locker.Client
}

func (l *signalled) open(c *locker.Client, err error) *locker.Client {
	l.must(err)
	l.b.Cleanup(func() { _ = c.Close() })
	return c
}

func (l *signalled) must(err error) {
	l.b.Helper()
	if err != nil {
		l.b.Fatal(err)
	}
}

func (l *signalled) lock(key string) *locker.Lease {
	lease, err := l.holder.Lock(context.Background(), key)
	l.must(err)
	return lease
}

func (l *signalled) unlock(lease *locker.Lease) { _ = lease.Unlock(context.Background()) }

func (l *signalled) await(c <-chan struct{}) time.Time {
	l.b.Helper()
	select {
	case <-c:
	case <-time.After(8 * time.Second): // the next renewal comes after 10 s
		l.b.Fatal("the holder knows of nothing")
	}
	return time.Now()
}

func (l *signalled) requested() time.Duration {
	lease := l.lock("k")
	defer l.unlock(lease)
	asked := lease.ReleaseRequested()
	start := time.Now()
	go func() { _ = l.sender.RequestRelease(context.Background(), "k") }()
	return l.await(asked).Sub(start)
}

func (l *signalled) broken() time.Duration {
	lease := l.lock("k")
	defer l.unlock(lease)
	lost := lease.Lost()
	h, err := l.sender.Inspect(context.Background(), "k")
	l.must(err)
	start, done := time.Now(), make(chan struct{})
	go func() {
		defer close(done)
		_ = l.sender.ForceUnlock(context.Background(), h)
	}()
	took := l.await(lost).Sub(start)
	<-done // it wakes waiters, and must not meet the next lock
	return took
}

func (l *signalled) deleted(rdb redis.UniversalClient) time.Duration {
	lease := l.lock("k")
	defer l.unlock(lease)
	for end := lease.Deadline(); !lease.Deadline().After(end); { // it is watched when it has been renewed
		time.Sleep(time.Millisecond) // a renewal is no event of the lease
	}
	lost, start := lease.Lost(), time.Now()
	l.must(rdb.Del(context.Background(), "k").Err())
	return l.await(lost).Sub(start)
}

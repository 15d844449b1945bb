package benchmarks

import (
	"context"
	"testing"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/conformance/faultproxy"
	"github.com/distlock/locker/internal/test/redistest"
	"github.com/distlock/locker/internal/test/signaltest"
	"github.com/distlock/locker/strategy/redlock"
	"github.com/redis/go-redis/v9"
)

// BenchmarkSignals: the time until a holder knows that it was asked to release, that its lock was broken, and that its
// key was deleted by hand (with WithLossDetection), on a near Redis, and the round trips that this takes, counted on
// one that is away. Want 1, 2 and 1 of these: the script that inspects for RequestRelease publishes the request; so
// does the one that breaks for ForceUnlock, and the holder asks; a DEL, which is sent without delay, shows, and the
// holder asks. What servers publish comes without delay.
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
		pair := signaltest.Open(b, func() (*locker.Client, error) { return open(rdbs) })
		what := map[string]func(*testing.B) time.Duration{"request": pair.Requested, "ForceUnlock": pair.Broken}
		if detects {
			d := signaltest.Open(b, func() (*locker.Client, error) { return open(rdbs, locker.WithLossDetection()) })
			what["DEL"] = func(b *testing.B) time.Duration {
				b.Helper()
				return d.Deleted(b, func() error { return near[0].Del(context.Background(), "k").Err() })
			}
		}
		for name, once := range what {
			b.Run(where+"/"+name, func(b *testing.B) {
				p50 := pair.Measure(b, once)
				if where == "far" {
					b.ReportMetric(float64((p50+away/4)/away), "trips")
				}
			})
		}
	}
}

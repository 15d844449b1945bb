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
	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

// away is how long a command takes to a server, and so, the answer coming at once, a
// round trip: long beside what else a hand-over takes on this machine.
const away = 20 * time.Millisecond

// far makes a client of a server that is away.
func far(b *testing.B, addr string) redis.UniversalClient {
	b.Helper()
	proxy := faultproxy.Start(b, addr)
	proxy.Record(false)
	proxy.Delay(faultproxy.MatchAny, 0, away)
	rdb := redis.NewClient(&redis.Options{Addr: proxy.Addr()})
	b.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

// BenchmarkHandOver: round trips from the call of Unlock to the return of the Lock that
// waits for it, in another process. The release takes one until it reaches the waiter, and
// the waiter's command another: 2 is the least. redsync polls.
func BenchmarkHandOver(b *testing.B) {
	for _, s := range strategies {
		b.Run(s.name, func(b *testing.B) {
			var ls [2]locker.Locker
			for i := range ls {
				ls[i] = open(b, far(b, redistest.Shared(b).Addr()), s.new)
			}
			handOvers(b, locking(ls[0]), locking(ls[1]))
		})
	}
	var addrs []string
	for range 5 {
		addrs = append(addrs, redistest.Start(b).Addr())
	}
	nodes := func(b *testing.B) (rdbs []redis.UniversalClient) {
		b.Helper()
		for _, addr := range addrs {
			rdbs = append(rdbs, far(b, addr))
		}
		return rdbs
	}
	b.Run("redlock", func(b *testing.B) {
		var ls [2]locker.Locker
		for i := range ls {
			ls[i] = open(b, nil, func(_ redis.UniversalClient, opts ...locker.Option) (*locker.Client, error) {
				return redlock.New(nodes(b), opts...)
			})
		}
		handOvers(b, locking(ls[0]), locking(ls[1]))
	})
	b.Run("redsync", func(b *testing.B) {
		var both [2]func(string) (func() error, error)
		for i := range both {
			var pools []redsyncredis.Pool
			for _, rdb := range nodes(b) {
				pools = append(pools, goredis.NewPool(rdb))
			}
			rs := redsync.New(pools...)
			both[i] = func(key string) (func() error, error) {
				m := rs.NewMutex(key, redsync.WithTries(1000))
				return func() error { _, err := m.Unlock(); return err }, m.Lock()
			}
		}
		handOvers(b, both[0], both[1])
	})
}

func locking(l locker.Locker) func(key string) (unlock func() error, err error) {
	return func(key string) (func() error, error) {
		lease, err := l.Lock(context.Background(), key)
		return func() error { return lease.Unlock(context.Background()) }, err
	}
}

func handOvers(b *testing.B, holder, waiter func(key string) (unlock func() error, err error)) {
	b.Helper()
	const key = "handed over"
	must := func(unlock func() error, err error) func() error {
		if err != nil {
			b.Fatal(err)
		}
		return unlock
	}
	for range 2 { // connections and scripts
		for _, lock := range []func(string) (func() error, error){holder, waiter} {
			if err := must(lock(key))(); err != nil {
				b.Fatal(err)
			}
		}
	}
	var took []time.Duration
	for b.Loop() {
		unlock := must(holder(key))
		type result struct {
			unlock func() error
			err    error
			at     time.Time
		}
		got := make(chan result, 1)
		go func() {
			unlock, err := waiter(key)
			got <- result{unlock, err, time.Now()}
		}()
		time.Sleep(10 * away) // the waiter is asleep, or between two looks: nobody says when
		freed := time.Now()
		if err := unlock(); err != nil {
			b.Fatal(err)
		}
		r := <-got
		took = append(took, r.at.Sub(freed))
		if err := must(r.unlock, r.err)(); err != nil {
			b.Fatal(err)
		}
	}
	slices.Sort(took)
	trips := func(d time.Duration) float64 { return float64(d) / float64(away) }
	b.ReportMetric(trips(took[len(took)/2]), "trips-median")
	b.ReportMetric(trips(took[len(took)*9/10]), "trips-p90")
	b.ReportMetric(0, "ns/op") // of the waiting, too
}

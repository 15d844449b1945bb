package benchmarks

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/conformance/faultproxy"
	"github.com/distlock/locker/internal/redistest"
	"github.com/distlock/locker/strategy/redlock"
	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

// BenchmarkRedlock: Lock and Unlock of free keys on five masters, by this package
// and by plain redsync, all on clients with default options, alone and from 32
// goroutines with a key each; all nodes healthy, and one of them a black hole
// behind which commands vanish. redsync-failfast is redsync with WithFailFast, so
// that it does not wait for all nodes; neither it nor plain redsync renews, fences
// or wakes.
func BenchmarkRedlock(b *testing.B) {
	for _, hole := range []bool{false, true} {
		name := "healthy"
		if hole {
			name = "one-black-hole"
		}
		b.Run(name, func(b *testing.B) {
			for _, goroutines := range []int{1, 32} {
				b.Run(fmt.Sprintf("redlock/goroutines=%d", goroutines), func(b *testing.B) {
					benchRedlock(b, goroutines, hole)
				})
				b.Run(fmt.Sprintf("redlock-unfenced/goroutines=%d", goroutines), func(b *testing.B) {
					benchRedlock(b, goroutines, hole, locker.WithoutFencing())
				})
				b.Run(fmt.Sprintf("redsync/goroutines=%d", goroutines), func(b *testing.B) {
					benchRedsync(b, goroutines, hole)
				})
				b.Run(fmt.Sprintf("redsync-failfast/goroutines=%d", goroutines), func(b *testing.B) {
					benchRedsync(b, goroutines, hole, redsync.WithFailFast(true))
				})
			}
		})
	}
}

// fiveMasters makes clients for five servers. The function returned makes the last
// of them, the only one with a proxy before it, a black hole.
func fiveMasters(b *testing.B) (rdbs []redis.UniversalClient, hole func()) {
	b.Helper()
	var last *faultproxy.Proxy
	for i := range 5 {
		addr := redistest.Start(b).Addr()
		if i == 4 {
			last = faultproxy.Start(b, addr)
			last.Record(false)
			addr = last.Addr()
		}
		rdb := redis.NewClient(&redis.Options{Addr: addr})
		b.Cleanup(func() { _ = rdb.Close() })
		rdbs = append(rdbs, rdb)
	}
	return rdbs, func() { last.Blackhole(true) }
}

func benchRedlock(b *testing.B, goroutines int, hole bool, opts ...locker.Option) {
	rdbs, blackHole := fiveMasters(b)
	l, err := redlock.New(rdbs, opts...)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := l.Close(); err != nil {
			b.Error(err)
		}
	})
	ctx := context.Background()
	pairs(b, goroutines, func() {
		pair(b, l, "warm-up") // the scripts become known
		if hole {
			blackHole()
		}
	}, func(key string) error {
		lease, err := l.Lock(ctx, key)
		if err != nil {
			return err
		}
		return lease.Unlock(ctx)
	})
}

func benchRedsync(b *testing.B, goroutines int, hole bool, opts ...redsync.Option) {
	rdbs, blackHole := fiveMasters(b)
	var pools []redsyncredis.Pool
	for _, rdb := range rdbs {
		pools = append(pools, goredis.NewPool(rdb))
	}
	rs := redsync.New(pools...)
	pairOf := func(key string) error {
		m := rs.NewMutex(key, opts...)
		if err := m.Lock(); err != nil {
			return err
		}
		if ok, err := m.Unlock(); !ok {
			return fmt.Errorf("redsync's Unlock: %w", err)
		}
		return nil
	}
	pairs(b, goroutines, func() {
		if err := pairOf("warm-up"); err != nil {
			b.Fatal(err)
		}
		if hole {
			blackHole()
		}
	}, pairOf)
}

// pairs measures pair from so many goroutines, with a key each.
func pairs(b *testing.B, goroutines int, prepare func(), pair func(key string) error) {
	prepare()
	var left atomic.Int64
	left.Store(int64(b.N))
	took := make([][]time.Duration, goroutines)
	var wg sync.WaitGroup
	b.ResetTimer()
	start := time.Now()
	for g := range goroutines {
		wg.Go(func() {
			key := fmt.Sprintf("pairs:%d", g)
			for left.Add(-1) >= 0 {
				began := time.Now()
				if err := pair(key); err != nil {
					b.Error(err)
					return
				}
				took[g] = append(took[g], time.Since(began))
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	all := slices.Concat(took...)
	slices.Sort(all)
	if len(all) == 0 {
		return
	}
	b.ReportMetric(float64(len(all))/time.Since(start).Seconds(), "pairs/s")
	b.ReportMetric(float64(all[len(all)*99/100].Microseconds())/1000, "p99-ms")
	b.ReportMetric(float64(all[len(all)-1].Microseconds())/1000, "max-ms")
}

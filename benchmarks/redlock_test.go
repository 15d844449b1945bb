//go:build unix

package benchmarks

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
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

// fiveMasters makes clients for five servers. With a hole, the function returned makes the
// last of them a black hole, by a proxy before it.
func fiveMasters(b *testing.B, hole bool) (rdbs []redis.UniversalClient, blackHole func(), cpu func() time.Duration) {
	b.Helper()
	var last *faultproxy.Proxy
	var servers []*redis.Client
	for i := range 5 {
		server := redistest.Start(b)
		servers = append(servers, server.Client(b))
		addr := server.Addr()
		if i == 4 && hole {
			last = faultproxy.Start(b, addr)
			last.Record(false)
			addr = last.Addr()
		}
		rdb := redis.NewClient(&redis.Options{Addr: addr})
		b.Cleanup(func() { _ = rdb.Close() })
		rdbs = append(rdbs, rdb)
	}
	cpu = func() time.Duration {
		var own syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &own); err != nil {
			b.Fatal(err)
		}
		sum := time.Duration(own.Utime.Nano() + own.Stime.Nano())
		for _, rdb := range servers {
			info := rdb.InfoMap(context.Background(), "cpu").Item
			for _, of := range []string{"used_cpu_sys", "used_cpu_user"} {
				seconds, err := strconv.ParseFloat(info("CPU", of), 64)
				if err != nil {
					b.Fatal(err)
				}
				sum += time.Duration(seconds * float64(time.Second))
			}
		}
		return sum
	}
	return rdbs, func() { last.Blackhole(true) }, cpu
}

func benchRedlock(b *testing.B, goroutines int, hole bool, opts ...locker.Option) {
	b.Helper()
	rdbs, blackHole, cpu := fiveMasters(b, hole)
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
	pairs(b, goroutines, cpu, func() {
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
	b.Helper()
	rdbs, blackHole, cpu := fiveMasters(b, hole)
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
	pairs(b, goroutines, cpu, func() {
		if err := pairOf("warm-up"); err != nil {
			b.Fatal(err)
		}
		if hole {
			blackHole()
		}
	}, pairOf)
}

// pairs measures pair from so many goroutines, with a key each. Besides time, which is
// everybody's on this machine, it counts what cpu says: the processors' time that this
// process and the servers take.
func pairs(b *testing.B, goroutines int, cpu func() time.Duration, prepare func(), pair func(key string) error) {
	b.Helper()
	prepare()
	var left atomic.Int64
	left.Store(int64(b.N))
	times := make([][]time.Duration, goroutines)
	var wg sync.WaitGroup
	b.ResetTimer()
	start, before := time.Now(), cpu()
	for g := range goroutines {
		wg.Go(func() {
			key := fmt.Sprintf("pairs:%d", g)
			for left.Add(-1) >= 0 {
				began := time.Now()
				if err := pair(key); err != nil {
					b.Error(err)
					return
				}
				times[g] = append(times[g], time.Since(began))
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	took, used := time.Since(start), cpu()-before
	all := slices.Concat(times...)
	slices.Sort(all)
	if len(all) == 0 {
		return
	}
	b.ReportMetric(float64(len(all))/took.Seconds(), "pairs/s")
	b.ReportMetric(float64(used.Microseconds())/float64(len(all)), "cpu-us/pair")
	b.ReportMetric(float64(all[len(all)*99/100].Microseconds())/1000, "p99-ms")
	b.ReportMetric(float64(all[len(all)-1].Microseconds())/1000, "max-ms")
}

package benchmarks

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/conformance/faultproxy"
	"github.com/distlock/locker/internal/test/redistest"
	"github.com/distlock/locker/strategy/blpop"
	"github.com/distlock/locker/strategy/hashreentrant"
	"github.com/distlock/locker/strategy/memory"
	"github.com/distlock/locker/strategy/setnx"
	"github.com/redis/go-redis/v9"
)

type newLocker = func(redis.UniversalClient, ...locker.Option) (*locker.Client, error)

var strategies = []struct {
	name string
	new  newLocker
}{
	{"setnx", setnx.New},
	{"hashreentrant", hashreentrant.New},
	{"blpop", blpop.New},
}

func open(b *testing.B, rdb redis.UniversalClient, n newLocker, opts ...locker.Option) locker.Locker {
	b.Helper()
	l, err := n(rdb, opts...)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := l.Close(); err != nil {
			b.Error(err)
		}
	})
	return l
}

// counted makes a client whose commands a proxy counts.
func counted(b *testing.B) (*redis.Client, *faultproxy.Proxy) {
	b.Helper()
	proxy := faultproxy.Start(b, redistest.Shared(b).Addr())
	rdb := redis.NewClient(&redis.Options{Addr: proxy.Addr(), PoolSize: 64})
	b.Cleanup(func() { _ = rdb.Close() })
	return rdb, proxy
}

// A locking command, not the setting up of a connection.
func isOurs(cmd []string) bool {
	switch strings.ToLower(cmd[0]) {
	case "hello", "client", "auth", "select", "ping":
		return false
	}
	return true
}

func pair(b *testing.B, l locker.Locker, key string) { //nolint:thelper // Helper takes a fifth of the time of a pair that asks nobody
	ctx := context.Background()
	lease, err := l.Lock(ctx, key)
	if err != nil {
		b.Fatal(err)
	}
	if err := lease.Unlock(ctx); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkCostUncontended: commands and round trips of Lock and Unlock of a free
// key. Want 2 and 2.
func BenchmarkCostUncontended(b *testing.B) {
	for _, s := range strategies {
		b.Run(s.name, func(b *testing.B) {
			rdb, proxy := counted(b)
			l := open(b, rdb, s.new)
			pair(b, l, "warm-up") // the scripts become known
			proxy.ResetCounts()
			n := 0
			for b.Loop() {
				pair(b, l, "key")
				n++
			}
			b.ReportMetric(float64(proxy.Count(isOurs))/float64(n), "cmds/op")
			b.ReportMetric(float64(proxy.RoundTrips())/float64(n), "trips/op")
		})
	}
}

// BenchmarkCostHandOver: commands of one hand-over of a contended key, with the
// waiters in one process, where it must not grow with their number, and with each
// of them in a process of its own, where it must not grow for blpop.
func BenchmarkCostHandOver(b *testing.B) {
	for _, s := range strategies {
		for _, waiters := range []int{1, 10, 100} {
			b.Run(fmt.Sprintf("%s/one-process/waiters=%d", s.name, waiters), func(b *testing.B) {
				rdb, proxy := counted(b)
				handOver(b, proxy, waiters, open(b, rdb, s.new))
			})
		}
		for _, processes := range []int{2, 10, 100} {
			b.Run(fmt.Sprintf("%s/processes=%d", s.name, processes), func(b *testing.B) {
				rdb, proxy := counted(b)
				ls := make([]locker.Locker, processes)
				for i := range ls {
					ls[i] = open(b, rdb, s.new)
				}
				handOver(b, proxy, processes-1, ls...)
			})
		}
	}
}

func handOver(b *testing.B, proxy *faultproxy.Proxy, waiters int, ls ...locker.Locker) {
	b.Helper()
	for _, l := range ls {
		pair(b, l, "warm-up")
	}
	proxy.ResetCounts()
	ctx, stop := context.WithCancel(context.Background())
	turns := make(chan struct{}) // one receive for each hand-over
	var wg sync.WaitGroup
	for i := range waiters + 1 { // one holds while the others wait
		l := ls[i%len(ls)]
		wg.Go(func() {
			for ctx.Err() == nil {
				lease, err := l.Lock(ctx, "contended")
				if err != nil {
					if ctx.Err() == nil {
						b.Error(err)
					}
					return
				}
				select {
				case turns <- struct{}{}:
				case <-ctx.Done():
				}
				if err := lease.Unlock(context.Background()); err != nil {
					b.Error(err)
				}
			}
		})
	}
	n := 0
	for b.Loop() {
		<-turns
		n++
	}
	cmds, trips := proxy.Count(isOurs), proxy.RoundTrips()
	stop()
	wg.Wait()
	b.ReportMetric(float64(cmds)/float64(n), "cmds/handover")
	b.ReportMetric(float64(trips)/float64(n), "trips/handover")
}

const held = 10_000

// BenchmarkCostHeldLock: goroutines and bytes of memory for each lock held, with
// 10,000 held. Want 0 and less than 1024.
func BenchmarkCostHeldLock(b *testing.B) {
	memoryOnly := func(_ redis.UniversalClient, opts ...locker.Option) (*locker.Client, error) {
		return memory.New(opts...)
	}
	for _, s := range append(strategies[:len(strategies):len(strategies)], struct {
		name string
		new  newLocker
	}{"memory", memoryOnly}) {
		b.Run(s.name, func(b *testing.B) {
			rdb := redistest.Shared(b).Client(b)
			l := open(b, rdb, s.new)
			var goroutines, bytes float64
			for b.Loop() {
				pair(b, l, "warm-up")
				g0, m0 := usage()
				leases := hold(b, l)
				g1, m1 := usage()
				goroutines = float64(g1-g0) / held
				bytes = float64(m1-m0) / held
				release(b, leases)
			}
			b.ReportMetric(goroutines, "goroutines/lock")
			b.ReportMetric(bytes, "B/lock")
		})
	}
}

func usage() (goroutines int, bytes int64) {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return runtime.NumGoroutine(), int64(m.HeapAlloc)
}

func hold(b *testing.B, l locker.Locker) []*locker.Lease {
	b.Helper()
	ctx := context.Background()
	leases := make([]*locker.Lease, held)
	each(func(i int) {
		var err error
		if leases[i], err = l.Lock(ctx, fmt.Sprintf("held:%d", i)); err != nil {
			b.Error(err)
		}
	})
	if b.Failed() {
		b.FailNow()
	}
	return leases
}

func release(b *testing.B, leases []*locker.Lease) {
	b.Helper()
	each(func(i int) {
		if err := leases[i].Unlock(context.Background()); err != nil {
			b.Error(err)
		}
	})
}

// each calls f(0) to f(held-1) from a few goroutines.
func each(f func(int)) {
	const workers = 32
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := w; i < held; i += workers {
				f(i)
			}
		})
	}
	wg.Wait()
}

// BenchmarkCostRenewal: round trips a second that keep 10,000 locks of 30 s
// renewed, watched for 20 s.
func BenchmarkCostRenewal(b *testing.B) {
	for _, s := range strategies {
		b.Run(s.name, func(b *testing.B) {
			rdb, proxy := counted(b)
			l := open(b, rdb, s.new)
			const watched = 20 * time.Second // time passing is the subject
			for b.Loop() {
				leases := hold(b, l)
				proxy.ResetCounts()
				time.Sleep(watched) // it is commands in a time that are counted
				trips, cmds := proxy.RoundTrips(), proxy.Count(isOurs)
				for _, lease := range leases {
					select {
					case <-lease.Lost():
						b.Fatalf("%s was lost", lease.Key())
					default:
					}
				}
				b.ReportMetric(float64(trips)/watched.Seconds(), "trips/s")
				b.ReportMetric(float64(cmds)/watched.Seconds(), "renewals/s")
				release(b, leases)
			}
		})
	}
}

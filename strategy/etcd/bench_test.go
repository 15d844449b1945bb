package etcd_test

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/distlock/locker"
	"github.com/distlock/locker/strategy/etcd"
	"github.com/distlock/locker/strategy/etcd/internal/members"
)

// benchmarks run on n members, and report what of their CPU a lock takes.
func benchmark(b *testing.B, n int, run func(n int, pair func(key string))) {
	b.Helper()
	b.Run(fmt.Sprint(n, " members"), func(b *testing.B) {
		all, err := members.Launch(n)
		require.NoError(b, err)
		defer members.StopAll(all)
		l, err := etcd.New(newClient(b, all...))
		require.NoError(b, err)
		defer l.Close()
		before := cpu(all)
		run(b.N, func(key string) {
			lease, err := l.Lock(context.Background(), key)
			if err != nil {
				b.Error(err)
				return
			}
			if err := lease.Unlock(context.Background()); err != nil {
				b.Error(err)
			}
		})
		b.ReportMetric(float64((cpu(all)-before).Microseconds())/float64(b.N), "etcd-µs/op")
	})
}

// cpu is what the members have used.
func cpu(all []*members.Server) (used time.Duration) {
	for _, s := range all {
		stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.PID()))
		fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
		for _, ticks := range fields[11:13] { // of 10 ms
			n, _ := strconv.Atoi(ticks)
			used += time.Duration(n) * 10 * time.Millisecond
		}
	}
	return used
}

// BenchmarkPair is Lock and Unlock of free keys, by one goroutine.
func BenchmarkPair(b *testing.B) {
	for _, members := range []int{1, 3} {
		benchmark(b, members, func(n int, pair func(key string)) {
			for i := range n {
				pair(fmt.Sprint("key ", i))
			}
		})
	}
}

// BenchmarkPairs64 is Lock and Unlock by 64 goroutines, each with a key of its own.
func BenchmarkPairs64(b *testing.B) {
	for _, members := range []int{1, 3} {
		benchmark(b, members, func(n int, pair func(key string)) {
			var wg sync.WaitGroup
			var done atomic.Int64
			for i := range 64 {
				wg.Go(func() {
					for done.Add(1) <= int64(n) {
						pair(fmt.Sprint("key ", i))
					}
				})
			}
			wg.Wait()
		})
	}
}

// BenchmarkRefused is TryLock of a key that another process holds.
func BenchmarkRefused(b *testing.B) {
	all, err := members.Launch(1)
	require.NoError(b, err)
	defer members.StopAll(all)
	l, err := etcd.New(newClient(b, all...))
	require.NoError(b, err)
	defer l.Close()
	other, err := etcd.New(newClient(b, all...))
	require.NoError(b, err)
	defer other.Close()
	lease, err := other.Lock(b.Context(), "k")
	require.NoError(b, err)
	b.ResetTimer()
	for range b.N {
		_, err = l.TryLock(b.Context(), "k")
		require.ErrorIs(b, err, locker.ErrNotAcquired)
	}
	b.StopTimer()
	require.NoError(b, lease.Unlock(b.Context()))
}

// BenchmarkContended is Lock and Unlock of one key by 16 Lockers, as processes of their own are: the time from one
// holder to the next.
func BenchmarkContended(b *testing.B) {
	all, err := members.Launch(1)
	require.NoError(b, err)
	defer members.StopAll(all)
	var wg sync.WaitGroup
	var done atomic.Int64
	for range 16 {
		l, err := etcd.New(newClient(b, all...))
		require.NoError(b, err)
		defer l.Close()
		wg.Go(func() {
			for done.Add(1) <= int64(b.N) {
				lease, err := l.Lock(context.Background(), "k")
				if err == nil {
					err = lease.Unlock(context.Background())
				}
				if err != nil {
					b.Error(err)
				}
			}
		})
	}
	wg.Wait()
}

// BenchmarkHeld is 10,000 locks with a TTL of 30 s that are held for 30 s. What it reports is CPU in percent of a
// core while they are held.
func BenchmarkHeld(b *testing.B) {
	const locks, hold = 10_000, 30 * time.Second
	all, err := members.Launch(1)
	require.NoError(b, err)
	defer members.StopAll(all)
	l, err := etcd.New(newClient(b, all...))
	require.NoError(b, err)
	defer l.Close()
	var wg sync.WaitGroup
	var next atomic.Int64
	leases := make([]*locker.Lease, locks)
	begun := time.Now()
	for range 64 {
		wg.Go(func() {
			for i := next.Add(1) - 1; i < locks; i = next.Add(1) - 1 {
				lease, err := l.Lock(context.Background(), fmt.Sprint("held ", i))
				if err != nil {
					b.Error(err)
					return
				}
				leases[i] = lease
			}
		})
	}
	wg.Wait()
	b.ReportMetric(locks/time.Since(begun).Seconds(), "locks/s")
	for range b.N {
		etcdBefore, own := cpu(all), ownCPU()
		time.Sleep(hold) // the time that is measured
		b.ReportMetric(100*(cpu(all)-etcdBefore).Seconds()/hold.Seconds(), "etcd-%")
		b.ReportMetric(100*(ownCPU()-own).Seconds()/hold.Seconds(), "client-%")
	}
	for _, lease := range leases {
		require.NoError(b, lease.Err())
	}
}

func ownCPU() time.Duration {
	var used syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &used)
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

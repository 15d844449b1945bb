package benchmarks

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/internal/test/redistest"
)

// BenchmarkSticky: pairs of one goroutine on one key, which the process keeps. Want 800,000 a second with tokens.
func BenchmarkSticky(b *testing.B) {
	for _, s := range strategies {
		for name, opts := range map[string][]locker.Option{
			"plain": nil, "sticky": {locker.WithSticky(500 * time.Millisecond)},
			"sticky without tokens": {locker.WithSticky(500 * time.Millisecond), locker.WithoutFencing()},
		} {
			b.Run(s.name+"/"+name, func(b *testing.B) {
				l := open(b, redistest.Shared(b).Client(b), s.new, opts...)
				for range 100 { // until it listens
					pair(b, l, "key")
				}
				time.Sleep(50 * time.Millisecond) // the subscription is under way, and no event shows its end
				b.ReportAllocs()
				for b.Loop() {
					pair(b, l, "key")
				}
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "pairs/s")
			})
		}
	}
}

// BenchmarkStickyWaiter: how long another process waits for a lock that nobody uses: one that is free, and one that
// a process keeps.
func BenchmarkStickyWaiter(b *testing.B) {
	for _, s := range strategies {
		for name, opts := range map[string][]locker.Option{"free": nil, "kept": {locker.WithSticky(500 * time.Millisecond)}} {
			b.Run(s.name+"/"+name, func(b *testing.B) {
				rdb := redistest.Shared(b).Client(b)
				holder, other := open(b, rdb, s.new, opts...), open(b, rdb, s.new)
				stays, err := holder.Lock(context.Background(), "another") // it listens
				if err != nil {
					b.Fatal(err)
				}
				stays.ReleaseRequested()
				var all []time.Duration
				for n := 0; b.Loop(); n++ {
					key := "waiter " + s.name + string(rune('a'+n%26)) + time.Now().String() // none cools
					pair(b, holder, key)
					start := time.Now()
					pair(b, other, key)
					all = append(all, time.Since(start))
				}
				slices.Sort(all)
				b.ReportMetric(float64(all[len(all)/2].Microseconds()), "p50-µs")
				b.ReportMetric(float64(all[len(all)*99/100].Microseconds()), "p99-µs")
				if err := stays.Unlock(context.Background()); err != nil {
					b.Fatal(err)
				}
			})
		}
	}
}

package benchmarks

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/internal/test/redistest"
)

// BenchmarkFairness: four processes of four goroutines contend for one key with
// holds of 1 ms, for 3 s. min/max is the smallest share of a process over the
// largest: 1 is perfectly fair. Want 0.95 of blpop; the others promise nothing.
func BenchmarkFairness(b *testing.B) {
	for _, s := range strategies {
		b.Run(s.name, func(b *testing.B) {
			const processes, goroutines = 4, 4
			ls := make([]locker.Locker, processes)
			for i := range ls {
				ls[i] = open(b, redistest.Shared(b).Client(b), s.new)
			}
			for b.Loop() {
				shares := contend(b, ls, goroutines, 3*time.Second)
				least, most, sum := shares[0], shares[0], 0
				for _, n := range shares {
					least, most, sum = min(least, n), max(most, n), sum+n
				}
				b.ReportMetric(float64(least)/float64(most), "min/max")
				b.ReportMetric(float64(sum)/3, "holds/s")
			}
		})
	}
}

// contend counts the holds each Locker gets within d.
func contend(b *testing.B, ls []locker.Locker, goroutines int, d time.Duration) []int {
	b.Helper()
	shares := make([]int, len(ls))
	end := time.Now().Add(d)
	var wg sync.WaitGroup
	for i, l := range ls {
		for range goroutines {
			wg.Go(func() {
				for time.Now().Before(end) {
					err := locker.Do(context.Background(), l, "fair", func(context.Context) error {
						shares[i]++
						time.Sleep(time.Millisecond) // the hold
						return nil
					})
					if err != nil {
						b.Error(err)
						return
					}
				}
			})
		}
	}
	wg.Wait()
	return shares
}

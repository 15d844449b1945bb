package renewal

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func newIdle() *Scheduler[int] {
	return New(Config[int]{
		Renew: func(context.Context, string, []int, func(int, error)) {},
		Final: func(error) bool { return false },
		Lost:  func(int, error) {},
	})
}

// One lock and unlock, beside others that are kept.
func BenchmarkAddStop(b *testing.B) {
	for _, n := range []int{0, 100_000} {
		b.Run(fmt.Sprintf("kept=%d", n), func(b *testing.B) {
			sch := newIdle()
			defer sch.Close()
			terms := func() Terms {
				return Terms{Interval: time.Hour, Validity: 3 * time.Hour, Deadline: time.Now().Add(3 * time.Hour)}
			}
			for i, kept := 0, make([]Entry[int], n); i < n; i++ {
				sch.Add(&kept[i], i, terms())
			}
			b.ReportAllocs()
			for b.Loop() {
				var e Entry[int]
				sch.Add(&e, 0, terms())
				sch.Stop(&e)
			}
		})
	}
}

func BenchmarkExpired(b *testing.B) {
	sch := newIdle()
	defer sch.Close()
	var e Entry[int]
	sch.Add(&e, 0, Terms{Deadline: time.Now().Add(time.Hour)})
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if sch.Expired(&e) {
				b.Error("Expired = true, want false: an hour is left")
			}
		}
	})
}

// One renewal of one of 10,000 claims; calls/op is the share of a round trip
// that it takes.
func BenchmarkRenew10k(b *testing.B) {
	const n = 10_000
	var renewed, calls atomic.Int64
	target := int64(b.N)
	done := make(chan struct{})
	var once sync.Once
	sch := New(Config[int]{
		Renew: func(_ context.Context, _ string, batch []int, answer func(int, error)) {
			calls.Add(1)
			for i := range batch {
				answer(i, nil)
			}
			if renewed.Add(int64(len(batch))) >= target {
				once.Do(func() { close(done) })
			}
		},
		Final: func(error) bool { return false },
		Lost:  func(_ int, cause error) { b.Error("lost:", cause) },
	})
	entries := make([]Entry[int], n)
	b.ReportAllocs()
	b.ResetTimer()
	for i := range entries {
		// So short an interval that the Scheduler is never idle.
		sch.Add(&entries[i], i, Terms{Interval: time.Microsecond, Validity: time.Hour, Deadline: time.Now().Add(time.Hour)})
	}
	<-done
	b.StopTimer()
	sch.Close()
	sch.Wait()
	b.ReportMetric(float64(calls.Load())/float64(renewed.Load()), "calls/op")
}

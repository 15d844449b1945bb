// Package contention measures callers in several processes that contend for permits.
package contention

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"os/exec"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/internal/bound"
	"github.com/distlock/locker/internal/child"
)

const (
	// Key is the key that callers contend for.
	Key = "permits"
	// Permits is how many permits the key has.
	Permits = 20

	kind      = "contention for permits"
	processes = 8
	callers   = 125 // goroutines of a process
	section   = time.Millisecond
	warmUp    = 2 * time.Second
	measured  = 5 * time.Second
)

// spec describes a process of Measure. It counts from Begin to End, in ns of the wall clock.
type spec struct {
	Contender, Addr string
	Begin, End      int64
}

// result is the result of a process.
type result struct {
	Counts   []float64 // acquisitions, by goroutine
	Waits    []time.Duration
	Sections [][2]int64 // from when to when, in ns of the wall clock
}

// Acquire waits for a permit, and returns how to give it back.
type Acquire func(ctx context.Context) (giveBack func(context.Context) error, err error)

// Semaphore makes an Acquire of a Semaphore of l.
func Semaphore(l locker.Locker) (Acquire, error) {
	s, err := locker.NewSemaphore(l, Key, Permits)
	return func(ctx context.Context) (func(context.Context) error, error) {
		lease, err := s.Acquire(ctx)
		return lease.Unlock, err
	}, err
}

// Serve does not return in a process of [Measure]. open is called there with the arguments of Measure.
func Serve(open func(contender, addr string) (Acquire, error)) {
	child.Serve(kind, func(parent child.Parent, s spec) error {
		acquire, err := open(s.Contender, s.Addr)
		if err != nil {
			return err
		}
		got, err := s.run(acquire)
		if err != nil {
			return err
		}
		return json.NewEncoder(parent).Encode(got)
	})
}

func (s spec) run(acquire Acquire) (got result, err error) {
	ctx, cancel := context.WithDeadline(context.Background(), time.Unix(0, s.End))
	defer cancel()
	got.Counts = make([]float64, callers)
	var mu sync.Mutex
	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() {
			for {
				asked := time.Now()
				giveBack, e := acquire(ctx)
				granted := time.Now()
				if ctx.Err() != nil || errors.Is(e, context.DeadlineExceeded) {
					if e == nil {
						_ = giveBack(context.Background())
					}
					return
				}
				if e == nil {
					bound.Sleep(context.Background(), nil, section)
				}
				released := time.Now()
				if e == nil {
					e = giveBack(context.Background())
				}
				mu.Lock()
				err = cmp.Or(err, e)
				if granted.UnixNano() >= s.Begin {
					got.Counts[i]++
					got.Waits = append(got.Waits, granted.Sub(asked))
					got.Sections = append(got.Sections, [2]int64{granted.UnixNano(), released.UnixNano()})
				}
				mu.Unlock()
				if e != nil {
					return
				}
			}
		})
	}
	all.Wait()
	return got, err
}

// Measure has 8 processes of 125 goroutines contend for 20 permits, with sections of 1 ms, and reports on b. contender
// and addr are for the open of [Serve]. cpu returns the seconds that the store has worked; or cpu is nil.
func Measure(b *testing.B, contender, addr string, cpu func() (float64, error)) {
	b.Helper()
	begin := time.Now().Add(warmUp)
	s := spec{contender, addr, begin.UnixNano(), begin.Add(measured).UnixNano()}
	got, errs := make([]result, processes), make([]error, processes)
	var all sync.WaitGroup
	for i := range got {
		all.Go(func() {
			p, err := child.Start(kind, s, (*exec.Cmd).Start)
			if err == nil {
				err = cmp.Or(json.NewDecoder(p).Decode(&got[i]), p.Stop(5*time.Second))
			}
			errs[i] = err
		})
	}
	worked := 0.0
	if cpu != nil {
		at := func(t time.Time) float64 {
			time.Sleep(time.Until(t)) // the window of the measurement begins or ends then
			seconds, err := cpu()
			if err != nil {
				b.Error(err)
			}
			return seconds
		}
		worked = -at(begin)
		worked += at(begin.Add(measured))
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		b.Fatal(err)
	}
	report(b, got, worked)
}

func report(b *testing.B, got []result, worked float64) {
	b.Helper()
	var callers, processes []float64
	var waits []time.Duration
	var sections [][2]int64
	for _, p := range got {
		sum := 0.0
		for _, n := range p.Counts {
			sum += n
		}
		callers, processes = append(callers, p.Counts...), append(processes, sum)
		waits, sections = append(waits, p.Waits...), append(sections, p.Sections...)
	}
	if most := inside(sections); most > Permits {
		b.Errorf("%d are inside, and there are %d permits", most, Permits)
	}
	if len(waits) == 0 {
		b.Fatal("nobody was granted a permit")
	}
	slices.Sort(waits)
	n := float64(len(waits))
	b.ReportMetric(n/measured.Seconds(), "acquisitions/s")
	b.ReportMetric(jain(callers), "jain-callers")
	b.ReportMetric(jain(processes), "jain-processes")
	if worked > 0 {
		b.ReportMetric(worked/n*1e6, "store-µs")
	}
	b.ReportMetric(waits[len(waits)/2].Seconds()*1e3, "p50-ms")
	b.ReportMetric(waits[len(waits)*99/100].Seconds()*1e3, "p99-ms")
	b.ReportMetric(slices.Min(callers), "least")
	b.ReportMetric(0, "ns/op") // without a meaning here
}

// inside returns how many sections there were at the same time at most.
func inside(sections [][2]int64) (most int) {
	var begins, ends []int64
	for _, s := range sections {
		begins, ends = append(begins, s[0]), append(ends, s[1])
	}
	slices.Sort(begins)
	slices.Sort(ends)
	for i, over := 0, 0; i < len(begins); i++ {
		for ends[over] <= begins[i] {
			over++
		}
		most = max(most, i+1-over)
	}
	return most
}

// jain is Jain's fairness index: 1 if all have the same, 1/n if one of n has everything.
func jain(shares []float64) float64 {
	sum, squares := 0.0, 0.0
	for _, x := range shares {
		sum += x
		squares += x * x
	}
	return sum * sum / (float64(len(shares)) * squares)
}

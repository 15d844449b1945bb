package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/internal/bound"
	"github.com/distlock/locker/internal/child"
	"github.com/distlock/locker/internal/test/redistest"
	"github.com/distlock/locker/strategy/hashreentrant"
	"github.com/distlock/locker/strategy/setnx"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

const (
	permitsKind      = "peers permits"
	permitsKey       = "permits"
	permitsOf        = 20
	permitsProcesses = 8
	permitsCallers   = 125 // goroutines of a process
	permitsSection   = time.Millisecond
	permitsWarmUp    = 2 * time.Second
	permitsTime      = 5 * time.Second
)

// permitsSpec describes a process of BenchmarkPermits. It counts from Begin to End, in ns of the wall clock.
type permitsSpec struct {
	Contender, Addr string
	Begin, End      int64
}

// permitsGot is the result of a process.
type permitsGot struct {
	Counts   []float64 // acquisitions, by goroutine
	Waits    []time.Duration
	Sections [][2]int64 // from when to when, in ns of the wall clock
}

// acquireFunc waits for a permit, and returns how to give it back.
type acquireFunc func(ctx context.Context) (giveBack func(context.Context) error, err error)

type permitsContender struct {
	name string
	open func(rdb *redis.Client) (acquireFunc, error)
}

var permitsContenders = []permitsContender{
	{"hashreentrant", openSemaphore(hashreentrant.New)}, {"setnx", openSemaphore(setnx.New)},
	{"hashreentrant WithoutHandOver", openSemaphore(hashreentrant.New, locker.WithoutHandOver())},
	{"RSemaphore", openRSemaphore}, {"RPermitExpirableSemaphore", openExpirable},
	{"redsync", openRedsyncs},
}

func openSemaphore(open func(redis.UniversalClient, ...locker.Option) (*locker.Client, error), opts ...locker.Option) func(*redis.Client) (acquireFunc, error) {
	return func(rdb *redis.Client) (acquireFunc, error) {
		l, err := open(rdb, opts...)
		if err != nil {
			return nil, err
		}
		s, err := locker.NewSemaphore(l, permitsKey, permitsOf)
		return func(ctx context.Context) (func(context.Context) error, error) {
			lease, err := s.Acquire(ctx)
			return lease.Unlock, err
		}, err
	}
}

// openRedsyncs makes a semaphore of as many locks as there are permits. A caller tries all of them once, beginning
// with any, and waits for as long as redsync does between two tries.
func openRedsyncs(rdb *redis.Client) (acquireFunc, error) {
	rs := redsync.New(goredis.NewPool(rdb))
	return func(ctx context.Context) (func(context.Context) error, error) {
		for {
			first := rand.N(permitsOf)
			for i := range permitsOf {
				m := rs.NewMutex(fmt.Sprintf("%s:%d", permitsKey, (first+i)%permitsOf), redsync.WithExpiry(usualTTL))
				err := m.TryLockContext(ctx)
				if taken := (*redsync.ErrTaken)(nil); err != nil && !errors.As(err, &taken) {
					return nil, err
				}
				if err == nil {
					return func(ctx context.Context) error {
						ok, err := m.UnlockContext(ctx)
						return refused(!ok, err)
					}, nil
				}
			}
			if !bound.Sleep(ctx, nil, 50*time.Millisecond+rand.N(200*time.Millisecond)) {
				return nil, ctx.Err()
			}
		}
	}, nil
}

// servePermits does not return in a process of BenchmarkPermits.
func servePermits() {
	child.Serve(permitsKind, func(parent child.Parent, s permitsSpec) error {
		// As many connections as Redisson has by default: for all contenders.
		rdb := redis.NewClient(&redis.Options{Addr: s.Addr, PoolSize: 64, PoolTimeout: time.Minute})
		i := slices.IndexFunc(permitsContenders, func(c permitsContender) bool { return c.name == s.Contender })
		acquire, err := permitsContenders[i].open(rdb)
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

func (s permitsSpec) run(acquire acquireFunc) (got permitsGot, err error) {
	ctx, cancel := context.WithDeadline(context.Background(), time.Unix(0, s.End))
	defer cancel()
	got.Counts = make([]float64, permitsCallers)
	var mu sync.Mutex
	var all sync.WaitGroup
	for i := range permitsCallers {
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
					bound.Sleep(context.Background(), nil, permitsSection)
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

// BenchmarkPermits: 8 processes of 125 goroutines contend for 20 permits, with sections of 1 ms. Run it with
// -benchtime 1x -count 3.
func BenchmarkPermits(b *testing.B) {
	for _, c := range permitsContenders {
		b.Run(c.name, func(b *testing.B) {
			for range b.N {
				runPermits(b, c.name)
			}
		})
	}
}

func runPermits(b *testing.B, contender string) {
	b.Helper()
	server := redistest.Start(b)
	rdb := server.Client(b)
	if err := rdb.Set(b.Context(), rSemaphoreKey, permitsOf, 0).Err(); err != nil {
		b.Fatal(err)
	}
	begin := time.Now().Add(permitsWarmUp)
	s := permitsSpec{contender, server.Addr(), begin.UnixNano(), begin.Add(permitsTime).UnixNano()}
	got, errs := make([]permitsGot, permitsProcesses), make([]error, permitsProcesses)
	var processes sync.WaitGroup
	for i := range got {
		processes.Go(func() {
			p, err := child.Start(permitsKind, s, (*exec.Cmd).Start)
			if err == nil {
				err = cmp.Or(json.NewDecoder(p).Decode(&got[i]), p.Stop(5*time.Second))
			}
			errs[i] = err
		})
	}
	admin := bench{admins: []*redis.Client{rdb}}
	cpu := func(at time.Time) float64 {
		time.Sleep(time.Until(at)) // the window of the measurement begins or ends then
		i, err := admin.info(b.Context())
		if err != nil {
			b.Error(err)
		}
		return i.cpu()
	}
	before := cpu(begin)
	after := cpu(begin.Add(permitsTime))
	processes.Wait()
	if err := errors.Join(errs...); err != nil {
		b.Fatal(err)
	}
	reportPermits(b, got, after-before)
}

func reportPermits(b *testing.B, got []permitsGot, cpu float64) {
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
	if most := inside(sections); most > permitsOf {
		b.Errorf("%d are inside, and there are %d permits", most, permitsOf)
	}
	slices.Sort(waits)
	n := float64(len(waits))
	b.ReportMetric(n/permitsTime.Seconds(), "acquisitions/s")
	b.ReportMetric(jain(callers), "jain-callers")
	b.ReportMetric(jain(processes), "jain-processes")
	b.ReportMetric(cpu/n*1e6, "redis-µs")
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

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/internal/child"
	"github.com/distlock/locker/internal/test/redistest"
	"github.com/distlock/locker/strategy/blpop"
	"github.com/distlock/locker/strategy/hashreentrant"
	"github.com/distlock/locker/strategy/setnx"
	"github.com/redis/go-redis/v9"
)

const (
	mixKind  = "peers mix"
	mixKeys  = 1000
	mixOther = 20 // one pair in so many is for a key of the other process
	mixTime  = 3 * time.Second
)

// mixSpec is what a process of BenchmarkMix does.
type mixSpec struct {
	Contender, Addr string
	Process         int
}

// mixed is what came of it.
type mixed struct {
	Pairs            int
	P50, P99, Others time.Duration // Others: p99 of the pairs on the other process's keys
	Longest          time.Duration
	Seconds          float64
}

func openSticky(open func(redis.UniversalClient, ...locker.Option) (*locker.Client, error)) func([]string, time.Duration) (lockFunc, error) {
	return func(addrs []string, _ time.Duration) (lockFunc, error) {
		l, err := open(dial(addrs[0]), locker.WithSticky(500*time.Millisecond))
		return locking(l), err
	}
}

var mixContenders = []struct {
	name string
	open func([]string, time.Duration) (lockFunc, error)
}{
	{"redsync", openRedsync}, {"rueidislock", openRueidislock},
	{"setnx", openOurs(setnx.New)}, {"setnx sticky", openSticky(setnx.New)},
	{"hashreentrant", openOurs(hashreentrant.New)}, {"hashreentrant sticky", openSticky(hashreentrant.New)},
	{"blpop", openOurs(blpop.New)}, {"blpop sticky", openSticky(blpop.New)},
}

// serveMix does not return in a process of BenchmarkMix.
func serveMix() {
	child.Serve(mixKind, func(parent child.Parent, s mixSpec) error {
		i := slices.IndexFunc(mixContenders, func(c struct {
			name string
			open func([]string, time.Duration) (lockFunc, error)
		}) bool {
			return c.name == s.Contender
		})
		lock, err := mixContenders[i].open([]string{s.Addr}, 0)
		if err != nil {
			return err
		}
		m, err := mix(lock, s.Process)
		if err != nil {
			return err
		}
		if err := json.NewEncoder(parent).Encode(m); err != nil {
			return err
		}
		ctx, cancel := parent.Context() // what it keeps, the other process may still wait for
		defer cancel()
		<-ctx.Done()
		return nil
	})
}

// mix makes pairs, most of them on the keys of the process.
func mix(lock lockFunc, process int) (m mixed, err error) {
	var all, others []time.Duration
	start := time.Now()
	for time.Since(start) < mixTime {
		of := process
		if rand.N(mixOther) == 0 {
			of = 1 - process
		}
		began := time.Now()
		h, err := lock(context.Background(), fmt.Sprintf("mix:%d", 2*rand.N(mixKeys/2)+of), 0)
		if err == nil {
			err = h.unlock(context.Background())
		}
		if err != nil {
			return m, err
		}
		took := time.Since(began)
		if all = append(all, took); of != process {
			others = append(others, took)
		}
	}
	m.Seconds = time.Since(start).Seconds()
	slices.Sort(all)
	slices.Sort(others)
	m.Pairs, m.P50, m.P99, m.Others = len(all), all[len(all)/2], all[len(all)*99/100], others[len(others)*99/100]
	m.Longest = all[len(all)-1]
	return m, nil
}

// BenchmarkMix: two processes of a goroutine, 1,000 keys; 95 % of the pairs of a key are made by one of the processes.
// Run it with -benchtime 1x -count 3.
func BenchmarkMix(b *testing.B) {
	for _, c := range mixContenders {
		b.Run(c.name, func(b *testing.B) {
			for range b.N {
				runMix(b, c.name, redistest.Start(b).Addr())
			}
		})
	}
}

func runMix(b *testing.B, contender, addr string) {
	b.Helper()
	var processes sync.WaitGroup
	var both [2]mixed
	var errs [2]error
	for i := range both {
		p, err := child.Start(mixKind, mixSpec{contender, addr, i}, (*exec.Cmd).Start)
		if err != nil {
			b.Fatal(err)
		}
		defer p.Stop(5 * time.Second)
		processes.Go(func() { errs[i] = json.NewDecoder(p).Decode(&both[i]) })
	}
	processes.Wait()
	if err := cmp.Or(errs[0], errs[1]); err != nil {
		b.Fatal(err)
	}
	micros := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1000 }
	for i, m := range both {
		of := fmt.Sprintf("process%d-", i+1)
		b.ReportMetric(float64(m.Pairs)/m.Seconds, of+"pairs/s")
		b.ReportMetric(micros(m.P50), of+"p50-µs")
		b.ReportMetric(micros(m.P99), of+"p99-µs")
		b.ReportMetric(micros(m.Others), of+"others-p99-µs")
		b.ReportMetric(micros(m.Longest), of+"longest-µs")
	}
}

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/distlock/locker/benchmarks/internal/rig"
	"github.com/distlock/locker/internal/child"
	"github.com/redis/go-redis/v9"
)

// A Job is measured by a process of its own, whose memory and CPU serve nothing else.
type Job struct {
	Strategy, Addr string
	PID            int // of the server, for a job that stops it
	Config         json.RawMessage
}

// serve registers nothing: it does not return in a process that was started for this kind of job.
func serve[Config, Result any](kind string, work func(context.Context, Job, Config) (Result, error)) {
	child.Serve("scale "+kind, func(parent child.Parent, job Job) error {
		redis.SetLogger(quiet{}) // what fails shows in the results
		ctx, stop := parent.Context()
		defer stop()
		var cfg Config
		if err := json.Unmarshal(job.Config, &cfg); err != nil {
			return err
		}
		result, err := work(ctx, job, cfg)
		if err != nil {
			return err
		}
		return json.NewEncoder(parent).Encode(result)
	})
}

// serveParent does not return in a process that this program has started.
func serveParent() {
	serve("held", workHeld)
	serve("away", workAway)
	serve("waiting", workWaiting)
	serve("crowd", workCrowd)
	serve("fleet", workFleet)
}

// inProcess does a job in a process of its own, on a server of its own.
func inProcess[Result any](ctx context.Context, kind, strategy string, cfg any) (r Result, err error) {
	s := &rig.Stage{Ctx: ctx}
	defer s.End()
	server := startServer(s)
	text, err := json.Marshal(cfg)
	if err != nil {
		return r, err
	}
	p, err := child.Start("scale "+kind, Job{strategy, server.Addr(), server.PID(), text}, nil)
	if err != nil {
		return r, err
	}
	defer context.AfterFunc(ctx, p.Kill)()
	if err := json.NewDecoder(p).Decode(&r); err != nil {
		_ = p.Stop(0)
		return r, fmt.Errorf("%s with %s: %w", kind, strategy, err)
	}
	return r, p.Stop(10 * time.Second)
}

type quiet struct{}

func (quiet) Printf(context.Context, string, ...any) {}

func dial(addr string) *redis.Client { return redis.NewClient(&redis.Options{Addr: addr}) }

// each calls f(0) to f(n-1) from so many goroutines, and returns the first error.
func each(n, goroutines int, f func(i int) error) error {
	var wg sync.WaitGroup
	var mu sync.Mutex
	var first error
	for g := range min(goroutines, n) {
		wg.Go(func() {
			for i := g; i < n; i += goroutines {
				if err := f(i); err != nil {
					mu.Lock()
					if first == nil {
						first = err
					}
					mu.Unlock()
					return
				}
			}
		})
	}
	wg.Wait()
	return first
}

// memory returns how many bytes this process uses.
func memory() float64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc + m.StackInuse)
}

// quantile sorts the values.
func quantile(values []float64, q float64) float64 {
	if len(values) == 0 {
		return 0
	}
	slices.Sort(values)
	return values[min(int(q*float64(len(values))), len(values)-1)]
}

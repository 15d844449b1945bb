package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/distlock/locker/internal/bound"
)

// A Job is the work of one process of a measurement: Workers goroutines lock, hold
// and unlock until they are stopped.
type Job struct {
	Contender string
	Addrs     []string
	Name      string // begins all keys, so that no earlier job has used them
	Clients   int    // of the contender, which the workers share out; 0 is one
	Workers   int
	Keys      int           // worker i locks key i mod Keys
	Hold      time.Duration // how long a section takes
	Record    bool          // when each section was, for gaps and overlaps
	Held      int           // locks that are held all the time, beside that
	HeldTTL   time.Duration // 0: the contender's default
}

// A Section is the time for which a worker held a key, in ns of the wall clock, which
// the processes of a machine share.
type Section struct {
	Key                      int
	Asked, Granted, Released int64
}

// A Result is the outcome of a Job between the end of Run and the call of Stop.
type Result struct {
	Elapsed, CPU  time.Duration
	Counts        []float64 // sections, by worker
	Sections      []Section
	Longest       time.Duration // wait, those that were not over counted so far
	Failed        int           // Locks and Unlocks, up to the end of the last
	FailedUnlocks int           // of these
	Error         string        // the first
	Lost          int           // of the locks held
	Goroutines    float64       // for each lock held
	Bytes         float64       // for each lock held
}

type worker struct {
	lock     lockFunc
	keyID    int
	count    atomic.Int64
	asked    atomic.Int64 // when the wait under way began
	sections []Section
	_        [64]byte // the next worker's counters are in another cache line
}

// Child is the process's side of a measurement. Its methods are called one after another.
type Child struct {
	job     Job
	clients []lockFunc
	workers []worker
	held    []hold
	ctx     context.Context
	stop    context.CancelFunc
	wg      sync.WaitGroup
	began   mark
	mu      sync.Mutex
	result  Result
}

// A mark has the counts at a moment.
type mark struct {
	at     time.Time
	cpu    time.Duration
	counts []float64
}

// Prepare opens the clients and locks keys of its own with each, so that connections
// are open and scripts known; then it takes the locks to be held.
func (c *Child) Prepare(job Job, _ *struct{}) error {
	c.job = job
	c.ctx, c.stop = context.WithCancel(context.Background())
	for range max(job.Clients, 1) {
		lock, err := contenders[job.Contender](job.Addrs, job.HeldTTL)
		if err != nil {
			return err
		}
		c.clients = append(c.clients, lock)
	}
	c.workers = make([]worker, job.Workers)
	for i := range c.workers {
		c.workers[i].lock, c.workers[i].keyID = c.clients[i%len(c.clients)], i%job.Keys
	}
	if err := each(max(min(job.Workers+job.Held, 256), len(c.clients)), func(i int) error {
		h, err := c.clients[i%len(c.clients)](c.ctx, fmt.Sprintf("%s:warm-up:%d:%d", job.Name, os.Getpid(), i), 0)
		if err != nil {
			return err
		}
		return h.unlock(c.ctx)
	}); err != nil {
		return fmt.Errorf("warm-up: %w", err)
	}
	return c.hold()
}

// Run lets the workers go, and begins to count after settle.
func (c *Child) Run(settle time.Duration, _ *struct{}) error {
	for i := range c.workers {
		c.wg.Go(func() { c.work(&c.workers[i]) })
	}
	time.Sleep(settle)
	c.began = c.mark()
	return nil
}

// Stop ends the counting and then the workers.
func (c *Child) Stop(_ struct{}, r *Result) error {
	end := c.mark()
	var longest int64
	for i := range c.workers {
		end.counts[i] -= c.began.counts[i]
		if asked := c.workers[i].asked.Load(); asked != 0 {
			longest = max(longest, end.at.UnixNano()-asked)
		}
	}
	for _, h := range c.held {
		if h.lost() != nil {
			c.result.Lost++
		}
	}
	c.stop()
	c.wg.Wait()
	*r = c.result
	r.Elapsed, r.CPU, r.Counts = end.at.Sub(c.began.at), end.cpu-c.began.cpu, end.counts
	for i := range c.workers {
		for _, s := range c.workers[i].sections {
			if s.Granted >= c.began.at.UnixNano() && s.Granted <= end.at.UnixNano() {
				longest = max(longest, s.Granted-s.Asked)
				r.Sections = append(r.Sections, s)
			}
		}
	}
	r.Longest = time.Duration(longest)
	return nil
}

func (c *Child) mark() mark {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // it has no reason to fail
	m := mark{time.Now(), time.Duration(u.Utime.Nano() + u.Stime.Nano()), make([]float64, len(c.workers))}
	for i := range c.workers {
		m.counts[i] = float64(c.workers[i].count.Load())
	}
	return m
}

func (c *Child) work(w *worker) {
	key := fmt.Sprintf("%s:key:%d", c.job.Name, w.keyID)
	for c.ctx.Err() == nil {
		s := Section{Key: w.keyID, Asked: time.Now().UnixNano()}
		w.asked.Store(s.Asked)
		h, err := w.lock(c.ctx, key, 0)
		s.Granted = time.Now().UnixNano()
		w.asked.Store(0)
		if err != nil {
			c.failed(err, 0)
			continue
		}
		if c.job.Hold > 0 {
			bound.Sleep(c.ctx, nil, c.job.Hold)
		}
		s.Released = time.Now().UnixNano()
		if err := h.unlock(context.Background()); err != nil {
			c.failed(err, 1)
			continue
		}
		w.count.Add(1)
		if c.job.Record {
			w.sections = append(w.sections, s)
		}
	}
}

// failed notes an error, unless it is of a wait that was ended.
func (c *Child) failed(err error, unlocks int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ctx.Err() != nil && unlocks == 0 {
		return
	}
	if c.result.Failed == 0 {
		c.result.Error = err.Error()
	}
	c.result.Failed++
	c.result.FailedUnlocks += unlocks
}

// each calls f(0) to f(n-1), some at a time.
func each(n int, f func(i int) error) error {
	errs, tickets := make([]error, n), make(chan struct{}, 256)
	var wg sync.WaitGroup
	for i := range n {
		tickets <- struct{}{}
		wg.Go(func() {
			errs[i] = f(i)
			<-tickets
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

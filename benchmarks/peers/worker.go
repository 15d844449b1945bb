package main

import (
	"context"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// A Job is what one process of a measurement does: Workers goroutines that lock, hold
// and unlock for as long as they are let.
type Job struct {
	Contender string
	Addrs     []string
	Name      string // begins all keys, so that no earlier job has used them
	Clients   int    // clients of the contender, which the workers share out; 0 is one
	Workers   int
	Keys      int           // worker i locks key i mod Keys
	Hold      time.Duration // how long a section takes
	Record    bool          // when each section was, for gaps and overlaps
	Held      int           // locks held from before to after, beside all that
	HeldTTL   time.Duration // 0: the contender's default
}

// A Section is the time for which a worker held a key, in ns of the wall clock, which
// the processes of a machine share.
type Section struct {
	Key                      int
	Asked, Granted, Released int64
}

// A Result is what came of a Job between the answer to Run and the call of Stop.
type Result struct {
	Elapsed, CPU  time.Duration
	Counts        []int64 // sections, by worker
	Sections      []Section
	Longest       time.Duration // wait, those that did not end counted so far
	Failed        int           // Locks and Unlocks, up to the end of the last
	FailedUnlocks int
	Lost          int     // of the locks held
	Error         string  // the first
	Goroutines    float64 // for each lock held
	Bytes         float64
}

type worker struct {
	locks    locks
	id       int
	key      string
	keyID    int
	count    atomic.Int64
	asked    atomic.Int64 // when the wait under way began
	sections []Section
	_        [64]byte // the next worker's counter is in another cache line
}

// Child is the process's side of a measurement. Its methods are called one after another.
type Child struct {
	job     Job
	clients []locks
	workers []worker
	held    []hold
	ctx     context.Context
	stop    context.CancelFunc
	wg      sync.WaitGroup

	began  time.Time
	cpu    time.Duration
	counts []int64

	mu     sync.Mutex
	result Result
}

// Prepare opens the clients and locks keys of its own with each, so that connections
// are open and scripts known; then it takes the locks to be held.
func (c *Child) Prepare(job Job, _ *struct{}) error {
	c.job = job
	c.ctx, c.stop = context.WithCancel(context.Background())
	for range max(job.Clients, 1) {
		l, err := openContender(job.Contender, job.Addrs, job.HeldTTL)
		if err != nil {
			return err
		}
		c.clients = append(c.clients, l)
	}
	c.workers = make([]worker, job.Workers)
	for i := range c.workers {
		w := &c.workers[i]
		w.id, w.keyID = i, i%max(job.Keys, 1)
		w.locks = c.clients[i%len(c.clients)]
		w.key = fmt.Sprintf("%s:key:%d", job.Name, w.keyID)
	}
	warm := max(min(job.Workers, 256), len(c.clients))
	if err := each(warm, min(warm, 256), func(i int) error {
		return pair(c.clients[i%len(c.clients)], fmt.Sprintf("%s:warm-up:%d:%d", job.Name, os.Getpid(), i))
	}); err != nil {
		return fmt.Errorf("warm-up: %w", err)
	}
	return c.hold()
}

// Run lets the workers go, and begins to count after settle.
func (c *Child) Run(settle time.Duration, _ *struct{}) error {
	for i := range c.workers {
		w := &c.workers[i]
		c.wg.Go(func() { c.work(w) })
	}
	time.Sleep(settle)
	c.began, c.cpu, c.counts = time.Now(), cpuTime(), c.count()
	return nil
}

// Stop ends the counting and then the workers.
func (c *Child) Stop(_ struct{}, r *Result) error {
	now, cpu, counts := time.Now(), cpuTime(), c.count()
	for i := range counts {
		counts[i] -= c.counts[i]
	}
	var longest int64
	for i := range c.workers {
		if asked := c.workers[i].asked.Load(); asked != 0 {
			longest = max(longest, now.UnixNano()-asked)
		}
	}
	lost := 0
	for _, h := range c.held {
		if h.Err() != nil {
			lost++
		}
	}
	c.stop()
	c.wg.Wait()

	*r = c.result
	r.Elapsed, r.CPU, r.Counts, r.Lost = now.Sub(c.began), cpu-c.cpu, counts, lost
	for i := range c.workers {
		for _, s := range c.workers[i].sections {
			if s.Granted >= c.began.UnixNano() && s.Granted <= now.UnixNano() {
				longest = max(longest, s.Granted-s.Asked)
				r.Sections = append(r.Sections, s)
			}
		}
	}
	r.Longest = time.Duration(longest)
	return nil
}

func (c *Child) count() []int64 {
	counts := make([]int64, len(c.workers))
	for i := range c.workers {
		counts[i] = c.workers[i].count.Load()
	}
	return counts
}

func (c *Child) work(w *worker) {
	for c.ctx.Err() == nil {
		s := Section{Key: w.keyID, Asked: time.Now().UnixNano()}
		w.asked.Store(s.Asked)
		h, err := w.locks.lock(c.ctx, w.key, 0)
		w.asked.Store(0)
		if err != nil {
			c.failed(err, false)
			continue
		}
		s.Granted = time.Now().UnixNano()
		if c.job.Hold > 0 {
			select {
			case <-time.After(c.job.Hold):
			case <-c.ctx.Done():
			}
		}
		s.Released = time.Now().UnixNano()
		if err := h.Unlock(context.Background()); err != nil {
			c.failed(err, true)
			continue
		}
		w.count.Add(1)
		if c.job.Record {
			w.sections = append(w.sections, s)
		}
	}
}

// failed notes an error, unless it is that of a wait that was ended.
func (c *Child) failed(err error, unlock bool) {
	if c.ctx.Err() != nil && !unlock {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.result.Failed++
	if unlock {
		c.result.FailedUnlocks++
	}
	if c.result.Error == "" {
		c.result.Error = err.Error()
	}
}

func pair(l locks, key string) error {
	h, err := l.lock(context.Background(), key, 0)
	if err != nil {
		return err
	}
	return h.Unlock(context.Background())
}

// each calls f(0) to f(n-1) from so many goroutines, and returns one of the errors.
func each(n, goroutines int, f func(i int) error) error {
	var next atomic.Int64
	errs := make(chan error, goroutines)
	for range goroutines {
		go func() {
			var err error
			for i := int(next.Add(1)) - 1; i < n && err == nil; i = int(next.Add(1)) - 1 {
				err = f(i)
			}
			errs <- err
		}()
	}
	var first error
	for range goroutines {
		if err := <-errs; first == nil {
			first = err
		}
	}
	return first
}

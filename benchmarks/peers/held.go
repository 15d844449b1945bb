package main

import (
	"context"
	"fmt"
	"runtime"
	"time"
)

const heldTTL = 6 * time.Second

var held = scenario{
	name:    "held",
	about:   "10,000 locks of one process, held and renewed, with a TTL of 6 s",
	setups:  []setup{{job: Job{Held: 10_000, HeldTTL: heldTTL}, least: heldTTL}},
	who:     renewed,
	rounds:  2,
	metrics: []metric{goroutinesPerLock, bytesPerLock, redisBytesPerLock, redisCPUPerTTL, clientCPUPerTTL},
	targets: []target{
		{metric: goroutinesPerLock, of: ours, factor: 0.001}, // some send renewals, however many locks there are
		{metric: bytesPerLock, of: ours, factor: 560},
	},
}

var (
	goroutinesPerLock = metric{"goroutines per lock", ratio, false, func(s *sample) float64 { return s.results[0].Goroutines }}
	bytesPerLock      = metric{"client memory per lock", bytes, false, func(s *sample) float64 { return s.results[0].Bytes }}
	redisBytesPerLock = metric{"Redis memory per lock", bytes, false, func(s *sample) float64 {
		return (s.before.data() - s.empty.data()) / float64(s.setup.job.Held)
	}}
	redisCPUPerTTL  = metric{"Redis CPU to keep a lock for its TTL", seconds, false, func(s *sample) float64 { return s.perTTL(s.redisCPU()) }}
	clientCPUPerTTL = metric{"client CPU for that", seconds, false, func(s *sample) float64 { return s.perTTL(s.results[0].CPU.Seconds()) }}
)

// perTTL is how much of cpu one lock took in the time of its TTL.
func (s *sample) perTTL(cpu float64) float64 {
	ttls := s.results[0].Elapsed.Seconds() / s.setup.job.HeldTTL.Seconds()
	return cpu / ttls / float64(s.setup.job.Held)
}

// hold takes the locks that the job wants held, and counts what they cost here.
func (c *Child) hold() error {
	if c.job.Held == 0 {
		return nil
	}
	lock := func(i int) (hold, error) {
		return c.clients[0](context.Background(), fmt.Sprintf("%s:held:%d", c.job.Name, i), c.job.HeldTTL)
	}
	// Connections, and stacks of goroutines that ended, are there however many locks are held.
	err := each(1000, func(i int) error {
		h, err := lock(i)
		if err != nil {
			return err
		}
		return h.unlock(context.Background())
	})
	if err != nil {
		return err
	}
	goroutines, memory := usage()
	c.held = make([]hold, c.job.Held)
	err = each(len(c.held), func(i int) (err error) {
		c.held[i], err = lock(i)
		return err
	})
	goroutinesThen, memoryThen := usage()
	c.result.Goroutines = float64(goroutinesThen-goroutines) / float64(c.job.Held)
	c.result.Bytes = (memoryThen - memory) / float64(c.job.Held)
	return err
}

func usage() (goroutines int, bytes float64) {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return runtime.NumGoroutine(), float64(m.HeapAlloc + m.StackInuse)
}

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
		{metric: goroutinesPerLock, of: ours, factor: 0},
		{metric: bytesPerLock, of: ours, factor: 700},
	},
}

var (
	goroutinesPerLock = metric{"goroutines per lock", plain, false, func(s *sample) float64 { return s.results[0].Goroutines }}
	bytesPerLock      = metric{"client memory per lock", bytes, false, func(s *sample) float64 { return s.results[0].Bytes }}
	redisBytesPerLock = metric{"Redis memory per lock", bytes, false, func(s *sample) float64 {
		return s.idle.memory / float64(s.setup.job.Held)
	}}
	redisCPUPerTTL  = metric{"Redis CPU to keep a lock for its TTL", duration, false, func(s *sample) float64 { return s.perTTL(s.redis.cpu) }}
	clientCPUPerTTL = metric{"client CPU for that", duration, false, func(s *sample) float64 { return s.perTTL(s.results[0].CPU) }}
)

// perTTL is how much of cpu one lock took in the time of its TTL.
func (s *sample) perTTL(cpu time.Duration) float64 {
	ttls := s.elapsed.Seconds() / s.setup.job.HeldTTL.Seconds()
	return cpu.Seconds() / ttls / float64(s.setup.job.Held)
}

// hold takes the locks that the job wants held, and counts what they cost here.
func (c *Child) hold() error {
	if c.job.Held == 0 {
		return nil
	}
	l := c.clients[0]
	if err := pair(l, c.job.Name+":warm-up:held"); err != nil {
		return err
	}
	goroutines, bytes := usage()
	c.held = make([]hold, c.job.Held)
	if err := each(len(c.held), 32, func(i int) (err error) {
		c.held[i], err = l.lock(context.Background(), fmt.Sprintf("%s:held:%d", c.job.Name, i), c.job.HeldTTL)
		return err
	}); err != nil {
		return fmt.Errorf("taking the locks to be held: %w", err)
	}
	goroutinesThen, bytesThen := usage()
	n := float64(len(c.held))
	c.result.Goroutines, c.result.Bytes = float64(goroutinesThen-goroutines)/n, float64(bytesThen-bytes)/n
	return nil
}

func usage() (goroutines int, bytes int64) {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return runtime.NumGoroutine(), int64(m.HeapAlloc + m.StackInuse)
}

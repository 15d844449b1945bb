package main

import (
	"fmt"
	"time"
)

// In these two scenarios clients of one process stand for processes: each has connections
// of its own and a place of its own in a queue; 1,000 processes would measure the kernel.

var crowd = scenario{
	name:    "crowd",
	about:   "one key, sections of 1 ms, and that many processes that wait",
	setups:  []setup{waiters(1), waiters(10), waiters(100), waiters(1000)},
	who:     waiting,
	rounds:  3,
	metrics: []metric{redisCPUHop, idleGap, handOvers},
}

func waiters(n int) setup {
	return setup{
		label: fmt.Sprint(n), least: time.Duration(n) * time.Millisecond,
		job: Job{Clients: n + 1, Workers: n + 1, Keys: 1, Hold: time.Millisecond, Record: true},
	}
}

var queue = scenario{
	name:  "queue",
	about: "1,000 processes that wait for one key, which stays held",
	setups: []setup{{least: 3 * time.Second, settle: 2 * time.Second,
		job: Job{Clients: 1001, Workers: 1001, Keys: 1, Hold: time.Hour}}},
	who:     waiting,
	rounds:  2,
	metrics: []metric{redisCPUPerWaiter, connectionsPerWaiter, redisBytesPerWaiter},
}

var (
	redisCPUPerWaiter = metric{"Redis CPU per waiter and second", seconds, false, func(s *sample) float64 {
		return s.redisCPU() / s.results[0].Elapsed.Seconds() / float64(s.setup.job.Clients)
	}}
	connectionsPerWaiter = metric{"connections per waiter", ratio, false, func(s *sample) float64 {
		return (s.before["connected_clients"] - s.empty["connected_clients"]) / float64(s.setup.job.Clients)
	}}
	redisBytesPerWaiter = metric{"Redis memory per waiter", bytes, false, func(s *sample) float64 {
		return (s.before["used_memory"] - s.empty["used_memory"]) / float64(s.setup.job.Clients)
	}}
)

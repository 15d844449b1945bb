package main

import "time"

var procs = scenario{
	name:  "procs",
	about: "4 processes of 4 goroutines, one key, sections of 1 ms",
	setups: []setup{{
		processes: 4, job: Job{Workers: 4, Keys: 1, Hold: time.Millisecond, Record: true},
		least: 4 * time.Second, // a process has a dozen turns of 20 ms a second: one more or less is 8 % of its share
	}},
	who:     waiting,
	metrics: []metric{idleGap, shareOfProcesses, longestWait, redisCPUHop},
	targets: []target{
		{metric: idleGap, of: ours, factor: 0.3, times: bestPeer},
		{metric: shareOfProcesses, of: []string{"setnx"}, factor: 0.5},
		{metric: shareOfProcesses, of: []string{"hashreentrant"}, factor: 0.8},
		{metric: shareOfProcesses, of: []string{"blpop"}, factor: 0.95},
		{metric: redisCPUHop, of: ours, factor: 50e-6},
	},
}

var turns = scenario{
	name:    "turns",
	about:   "8 processes of 1 goroutine, one key, sections of 1 ms",
	setups:  []setup{{processes: 8, job: Job{Workers: 1, Keys: 1, Hold: time.Millisecond, Record: true}}},
	who:     waiting,
	metrics: []metric{idleGap, shareOfProcesses, longestWait, redisCPUHop},
	targets: []target{
		{metric: idleGap, of: []string{"hashreentrant"}, factor: 1, times: "rueidislock"},
		{metric: idleGap, of: []string{"blpop"}, factor: 0.6, times: "rueidislock"},
		{metric: shareOfProcesses, of: []string{"hashreentrant"}, factor: 0.8},
		{metric: shareOfProcesses, of: []string{"blpop"}, factor: 0.95},
		{metric: redisCPUHop, of: []string{"hashreentrant", "blpop"}, factor: 0.8, times: "rueidislock"},
	},
}

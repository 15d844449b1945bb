package main

import (
	"slices"
	"time"
)

// A scenario is measured of each of its contenders in each of its setups.
type scenario struct {
	name    string
	about   string
	setups  []setup
	who     []string
	metrics []metric
	targets []target
	rounds  int // at most, 0 for no such limit
}

// A target is what a metric of our strategies is to come to: no worse than factor
// times that of another contender, or than factor itself.
type target struct {
	metric metric
	of     []string
	factor float64
	times  string // a contender, or bestPeer, or "" for nothing
	setup  string // the label of the one that it is about, if there are several
}

const bestPeer = "the best peer"

var scenarios = []scenario{solo, wide, herd, procs, turns}

var solo = scenario{
	name:    "solo",
	about:   "1 goroutine locks and unlocks a free key",
	setups:  []setup{{job: Job{Workers: 1, Keys: 1}}},
	who:     all,
	metrics: []metric{pairsPerSecond, clientCPU, redisCPU},
	targets: []target{{metric: pairsPerSecond, of: ours, factor: 0.85, times: "floor"}},
}

var wide = scenario{
	name:    "wide",
	about:   "256 goroutines of one process, a key each",
	setups:  []setup{{job: Job{Workers: 256, Keys: 256}}},
	who:     all,
	metrics: []metric{pairsPerSecond, clientCPU, redisCPU},
	targets: []target{
		{metric: pairsPerSecond, of: []string{"setnx", "hashreentrant"}, factor: 1.3, times: "rueidislock"},
		{metric: pairsPerSecond, of: []string{"blpop"}, factor: 1, times: "rueidislock"},
		{metric: clientCPU, of: ours, factor: 16e-6},
	},
}

var herd = scenario{
	name:    "herd",
	about:   "32 goroutines of one process, one key, sections that do nothing",
	setups:  []setup{{job: Job{Workers: 32, Keys: 1, Record: true}}},
	who:     waiting,
	metrics: []metric{handOvers, longestWait, shareOfGoroutines, redisCPUHop},
	targets: []target{
		{metric: handOvers, of: ours, factor: 5, times: bestPeer},
		{metric: longestWait, of: ours, factor: 10e-3},
		{metric: shareOfGoroutines, of: ours, factor: 0.95},
	},
}

var procs = scenario{
	name:    "procs",
	about:   "4 processes of 4 goroutines, one key, sections of 1 ms",
	setups:  []setup{{processes: 4, job: Job{Workers: 4, Keys: 1, Hold: time.Millisecond, Record: true}}},
	who:     waiting,
	metrics: []metric{idleGap, shareOfProcesses, longestWait, redisCPUHop},
	targets: []target{
		{metric: idleGap, of: ours, factor: 0.3, times: bestPeer},
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
		{metric: idleGap, of: []string{"blpop"}, factor: 0.6, times: "rueidislock"},
		{metric: shareOfProcesses, of: []string{"blpop"}, factor: 0.95},
		{metric: redisCPUHop, of: []string{"blpop"}, factor: 0.8, times: "rueidislock"},
	},
}

// only leaves those scenarios and contenders that are named, if any are.
func only(scenarioNames, contenderNames []string) (out []scenario) {
	for _, s := range scenarios {
		if len(scenarioNames) > 0 && !slices.Contains(scenarioNames, s.name) {
			continue
		}
		if len(contenderNames) > 0 {
			s.who = slices.DeleteFunc(slices.Clone(s.who), func(c string) bool { return !slices.Contains(contenderNames, c) })
		}
		out = append(out, s)
	}
	return out
}

package main

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

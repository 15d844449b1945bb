package main

var solo = scenario{
	name:    "solo",
	about:   "1 goroutine locks and unlocks a free key",
	setups:  []setup{{job: Job{Workers: 1, Keys: 1}}, {label: "one core", oneCore: true, job: Job{Workers: 1, Keys: 1}}},
	who:     all,
	metrics: []metric{pairsPerSecond, clientCPU, redisCPU},
	targets: []target{{metric: pairsPerSecond, of: ours, factor: 0.85, times: "floor", setup: "one core"}},
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

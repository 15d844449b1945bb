package main

var solo = scenario{
	name:    "solo",
	about:   "1 goroutine locks and unlocks a free key",
	setups:  []setup{{job: Job{Workers: 1, Keys: 1}}, {label: "one core", oneCore: true, job: Job{Workers: 1, Keys: 1}}},
	who:     all,
	metrics: []metric{pairsPerSecond, clientCPU, redisCPU},
	targets: []target{
		{metric: pairsPerSecond, of: ours, factor: 0.92, times: "floor"},
		{metric: pairsPerSecond, of: ours, factor: 1, times: bestPeer},
		{metric: pairsPerSecond, of: []string{"setnx"}, factor: 0.88, times: "floor", setup: "one core"},
		{metric: pairsPerSecond, of: []string{"hashreentrant"}, factor: 0.82, times: "floor", setup: "one core"},
		{metric: pairsPerSecond, of: []string{"blpop"}, factor: 0.8, times: "floor", setup: "one core"},
	},
}

var wide = scenario{
	name:    "wide",
	about:   "256 goroutines of one process, a key each",
	setups:  []setup{{job: Job{Workers: 256, Keys: 256}}},
	who:     all,
	metrics: []metric{pairsPerSecond, clientCPU, redisCPU},
	targets: []target{
		{metric: pairsPerSecond, of: []string{"setnx"}, factor: 1.5, times: "rueidislock"},
		{metric: pairsPerSecond, of: []string{"hashreentrant"}, factor: 1.4, times: "rueidislock"},
		{metric: pairsPerSecond, of: []string{"blpop"}, factor: 1.25, times: "rueidislock"},
		{metric: clientCPU, of: ours, factor: 16e-6},
	},
}

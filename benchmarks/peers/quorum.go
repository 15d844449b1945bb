package main

import (
	"fmt"
	"time"
)

var quorum = scenario{
	name:    "quorum",
	about:   "goroutines with a key each on five masters:",
	setups:  []setup{five(1, false), five(32, false), five(1, true), five(32, true)},
	who:     []string{"redsync", "redlock"},
	rounds:  3,
	metrics: []metric{pairsPerSecond, longestWait, clientCPU},
	targets: []target{{metric: pairsPerSecond, of: []string{"redlock"}, factor: 1.2, times: "redsync", setup: "1, all well"}},
}

func five(workers int, hole bool) setup {
	s := setup{masters: 5, hole: hole, job: Job{Workers: workers, Keys: workers, Record: true}}
	if s.label = fmt.Sprintf("%d, all well", workers); hole {
		s.label = fmt.Sprintf("%d, one master silent", workers)
		s.settle = 2 * time.Second
	}
	return s
}

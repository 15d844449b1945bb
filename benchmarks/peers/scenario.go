package main

import "slices"

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

var scenarios = []scenario{solo, wide, herd, procs, turns, held, far, farTurns, farKeys, beside, crowd, queue, quorum}

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

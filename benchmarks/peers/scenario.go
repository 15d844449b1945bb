package main

import (
	"slices"
	"strings"
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

// A target bounds a metric of our strategies: no worse than factor
// times that of another contender, or than factor itself.
type target struct {
	metric metric
	of     []string
	factor float64
	setup  string // its label, where there are several
	times  string // a contender, or bestPeer, or "" for nothing
}

const bestPeer = "the best peer"

var scenarios = []scenario{solo, wide, herd, procs, turns, held, far, farTurns, farKeys, beside, crowd, queue, quorum}

// only leaves those scenarios and contenders that are listed; an empty list is of all.
func only(scenarioNames, contenderNames string) (out []scenario) {
	unlisted := func(list, name string) bool {
		return list != "" && !slices.Contains(strings.Split(list, ","), name)
	}
	for _, s := range scenarios {
		if !unlisted(scenarioNames, s.name) {
			s.who = slices.DeleteFunc(slices.Clone(s.who), func(c string) bool { return unlisted(contenderNames, c) })
			out = append(out, s)
		}
	}
	return out
}

func names() string {
	var out []string
	for _, s := range scenarios {
		out = append(out, s.name)
	}
	return strings.Join(out, ",")
}

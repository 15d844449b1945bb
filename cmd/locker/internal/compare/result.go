// Package compare runs the conformance suite and some benchmarks on strategies, side by
// side, and makes a report of that.
package compare

import (
	"slices"
	"time"

	"github.com/distlock/locker/conformance"
)

// schema is the version of the JSON. It grows with each change that a reader has to know of.
const schema = 2

// Result is all that is found; --json prints it. Times are in the unit that a name ends with.
type Result struct {
	Schema     int         `json:"schema"`
	Started    time.Time   `json:"started"`
	TookS      float64     `json:"took_s"`
	Machine    string      `json:"machine"`
	Load       Load        `json:"load"`
	OwnServers bool        `json:"own_servers"` // started for this, and killed by the suite
	Quick      bool        `json:"quick"`
	Seed       uint64      `json:"seed"` // of the order of the runs
	RunCount   int         `json:"runs"`
	RunS       float64     `json:"run_s"`           // how long one is
	BoutS      float64     `json:"contended_run_s"` // and one of a contended key
	Strategies []*Strategy `json:"strategies"`
	Advice     []Advice    `json:"advice"`
	Limits     []string    `json:"limits"` // of what these figures say
	need       Need        // asked for; "" is all
}

// Strategy has the results of one strategy on a store.
type Strategy struct {
	Name       string             `json:"name"` // numbered if the strategy is there twice
	Strategy   string             `json:"strategy"`
	Store      string             `json:"store"`
	Properties map[string]string  `json:"properties"`
	Suite      *Suite             `json:"suite,omitempty"`
	Figures    map[string]*Figure `json:"figures,omitempty"` // by metric
	Second     *Second            `json:"second,omitempty"`
	Faults     []Fault            `json:"faults,omitempty"`
	Error      string             `json:"error,omitempty"` // why some of it is missing

	on          *contestant
	waits, gaps []float64 // of all runs, for the plots
}

// Suite is the outcome of the conformance suite.
type Suite struct {
	Seed    uint64               `json:"seed"`
	Passed  int                  `json:"passed"`
	Failed  int                  `json:"failed"`
	Skipped int                  `json:"skipped"`
	Results []conformance.Result `json:"results"`
}

func suiteOf(r conformance.Report) *Suite {
	s := &Suite{Seed: r.Seed, Results: r.Results}
	for _, res := range r.Results {
		switch res.Outcome {
		case conformance.Passed:
			s.Passed++
		case conformance.Failed:
			s.Failed++
		default:
			s.Skipped++
		}
	}
	return s
}

// quantile is of sorted values.
func quantile(sorted []float64, q float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}

func sortedBy(values []time.Duration, unit time.Duration) []float64 {
	all := make([]float64, len(values))
	for i, v := range values {
		all[i] = float64(v) / float64(unit)
	}
	slices.Sort(all)
	return all
}

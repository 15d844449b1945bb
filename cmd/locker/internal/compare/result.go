// Package compare runs the conformance suite and some benchmarks on strategies, side by
// side, and makes a report of that.
package compare

import (
	"slices"
	"time"

	"github.com/distlock/locker/conformance"
)

// Result is all that is found; --json prints it. Times are in the unit that a name ends with.
type Result struct {
	Started    time.Time   `json:"started"`
	TookS      float64     `json:"took_s"`
	Machine    string      `json:"machine"`
	Server     string      `json:"server"`
	OwnServers bool        `json:"own_servers"` // started for this, and killed by the suite
	Quick      bool        `json:"quick"`
	Strategies []*Strategy `json:"strategies"`
	Advice     []Advice    `json:"advice"`
	Limits     []string    `json:"limits"` // of what these figures say
	need       Need        // asked for; "" is all
}

// Strategy has the results of one strategy.
type Strategy struct {
	Name  string `json:"name"`
	Suite *Suite `json:"suite,omitempty"`
	Bench *Bench `json:"bench,omitempty"`
	Error string `json:"error,omitempty"` // why one of them is missing
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

// Bench are the figures of the benchmarks.
type Bench struct {
	Solo      Pairs     `json:"solo"`      // one goroutine
	Wide      Pairs     `json:"wide"`      // many, a key each
	Contended Contended `json:"contended"` // many for one key
	// WaitingCommandsPerS counts the commands that a process sends while it waits for a held key.
	WaitingCommandsPerS *float64 `json:"waiting_commands_per_s,omitempty"`
}

// Pairs are Locks and Unlocks of free keys.
type Pairs struct {
	PerS  float64 `json:"per_s"`
	P50US float64 `json:"p50_us"`
	P99US float64 `json:"p99_us"`
}

// Contended are grants of a key for which several Lockers, as several processes, contend.
type Contended struct {
	GrantsPerS        float64   `json:"grants_per_s"`
	WaitP50MS         float64   `json:"wait_p50_ms"`
	WaitP99MS         float64   `json:"wait_p99_ms"`
	WaitMaxMS         float64   `json:"wait_max_ms"`
	HandOverP50US     float64   `json:"hand_over_p50_us"` // from Unlock to the next grant
	HandOverP99US     float64   `json:"hand_over_p99_us"`
	Fairness          float64   `json:"fairness"` // the smallest share of a Locker by the largest
	CommandsPerGrant  *float64  `json:"commands_per_grant,omitempty"`
	ServerCPUPerGrant *float64  `json:"server_cpu_us_per_grant,omitempty"`
	WaitsMS           []float64 `json:"-"` // sorted
	HandOversUS       []float64 `json:"-"` // sorted
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

// passed says whether all cases of these names that ran have passed, and whether any ran.
func (s *Strategy) passed(names ...string) (ok, ran bool) {
	if s.Suite == nil {
		return false, false
	}
	ok = true
	for _, r := range s.Suite.Results {
		if !slices.Contains(names, r.Name) && !slices.Contains(names, r.Group+"/*") {
			continue
		}
		ran = ran || r.Outcome == conformance.Passed || r.Outcome == conformance.Failed
		ok = ok && r.Outcome != conformance.Failed
	}
	return ok && ran, ran
}

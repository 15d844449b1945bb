package compare

import (
	"slices"

	"github.com/aclements/go-moremath/stats"
)

// Figure has what was measured of a metric: a value for each run.
type Figure struct {
	Median   float64   `json:"median"`
	Least    float64   `json:"least"`
	Greatest float64   `json:"greatest"`
	Runs     []float64 `json:"runs"`
	Events   int       `json:"events"` // of all runs, that the values are made of
	// AtLeast: the greatest value is of a wait that the end of its run cut off.
	AtLeast bool `json:"at_least,omitempty"`
	// MedianAtLeast: the median depends on such waits.
	MedianAtLeast bool `json:"median_at_least,omitempty"`
	// Few: there were too few events to say anything.
	Few bool `json:"too_few,omitempty"`
}

// metric is a property that is measured.
type metric struct {
	id, title, unit string
	more            bool // the greater the better
	fewest          int  // events that a figure needs
	about           string
}

// metrics are all of them, in the order of the tables.
var metrics = []metric{
	{"pair", "a free key: Lock + Unlock", "µs", false, 30, "Less is better. One goroutine, one pair after another."},
	{"wide", "free keys, 64 goroutines", "pairs/s", true, 30, "More is better. One process, a key for each goroutine."},
	{"changes", "one key, 4 processes: changes of process", "1/s", true, fewestChanges, "More is better. How often the lock goes to another process; a process that takes its own lock again does not count."},
	{"grants", "… grants, those to the same process included", "1/s", true, fewestChanges, "Many grants and few changes are one process that keeps the lock."},
	{"gap", "… idle gap at a change", "µs", false, fewestChanges, "Less is better. From Unlock in one process to the grant in the next one."},
	{"longest", "… longest wait", "ms", false, fewestChanges, "Less is better. Waits that the end of a run cut off count with what they had lasted."},
	{"share", "… least share ÷ greatest", "", true, fewestChanges, "1 is equal shares of the processes."},
	{"commands", "… commands to the server at a change", "", false, fewestChanges, "Less is better."},
	{"cpu", "… server CPU at a change", "µs", false, fewestChanges, "Less is better."},
	{"waiting", "a process that waits: commands", "1/s", false, 1, "Less is better. For each process that waits for a held key."},
	{"waitingcpu", "a process that waits: server CPU", "µs/s", false, 1, "Less is better."},
	{"heldcpu", "a held lock: server CPU for a renewal", "µs", false, 1, "Less is better."},
	{"heldmemory", "a held lock: memory of its process", "B", false, 1, "Less is better."},
}

const fewestChanges = 30

func metricOf(id string) metric {
	return metrics[slices.IndexFunc(metrics, func(m metric) bool { return m.id == id })]
}

// newFigure makes the figure of a metric.
func newFigure(m metric, runs []float64, events int) *Figure {
	if len(runs) == 0 {
		return nil
	}
	sorted := slices.Sorted(slices.Values(runs))
	return &Figure{Median: middle(sorted), Least: sorted[0], Greatest: sorted[len(sorted)-1], Runs: runs, Events: events, Few: events < m.fewest}
}

// cutOff marks what would be greater if the ends of runs had not cut waits off. cut are the runs of which that is known.
func (f *Figure) cutOff(cut []float64) {
	if len(cut) > 0 {
		f.AtLeast = slices.Contains(cut, f.Greatest)
		f.MedianAtLeast = slices.Min(cut) <= slices.Sorted(slices.Values(f.Runs))[len(f.Runs)/2]
	}
}

// middle returns the median of sorted values.
func middle(sorted []float64) float64 {
	if n := len(sorted); n%2 == 0 {
		return (sorted[n/2-1] + sorted[n/2]) / 2
	}
	return sorted[len(sorted)/2]
}

// A strategy is called better than another one by a metric if both have so many runs, and the
// Mann-Whitney test finds that it is better by more than the factor apart: the worse one, made better by
// that factor, is still less good, with p < alpha. Smaller differences do not last: between ten runs of
// this program the ratio of two medians for a free key had a standard deviation of 0.24, where the runs
// within each of the ten let one expect 0.14. The rest is what all runs within one program share, which no
// test of them can see. Turns are taken, but neighbouring runs share what the machine does besides: alpha
// is small for that reason, and for the many pairs that are tested.
const (
	runsToRank = 30
	alpha      = 0.001
	apart      = 1.2  // between strategies
	changed    = 1.05 // between two runs of this program, whose reader gives a threshold of his own
)

const noDifference = "no difference"

// comparison is of two figures of a metric.
type comparison struct {
	better bool    // the first one is better, beyond the noise
	worse  bool    // it is worse
	p      float64 // of the test; 1 without one
	why    string  // neither: why
}

// compared finds whether one of two figures is better by more than the factor by, beyond the noise.
func (m metric) compared(a, b *Figure, by float64) comparison {
	c := comparison{p: 1}
	switch {
	case a == nil || b == nil:
		c.why = "not measured for both"
		return c
	case a.Few || b.Few:
		c.why = "too few events to say"
		return c
	case min(len(a.Runs), len(b.Runs)) < runsToRank:
		c.why = "fewer than 30 runs"
		return c
	}
	greater, lesser := a, b
	if a.Median < b.Median {
		greater, lesser = b, a
	}
	if greater.Median > by*lesser.Median {
		grown := slices.Clone(lesser.Runs)
		for i := range grown {
			grown[i] *= by
		}
		// One-sided, and doubled: runs of two modes may be the lesser ones mostly, though their median is the greater one.
		if test, err := stats.MannWhitneyUTest(grown, greater.Runs, stats.LocationLess); err == nil {
			c.p = min(1, 2*test.P)
		}
	}
	if c.p >= alpha {
		c.why = noDifference
		return c
	}
	c.better = (greater == a) == m.more
	c.worse = !c.better
	return c
}

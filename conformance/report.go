package conformance

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
)

const notSelected = "not selected"

// report collects what became of each case.
type report struct {
	strategy string
	seed     uint64
	cases    []Case

	mu      sync.Mutex
	results map[string]result // by path
}

type result struct {
	verdict verdict
	reason  string // of a skip
}

type verdict int

const (
	notRun verdict = iota // left out by -run or -failfast
	passed
	failed
	skipped
)

func newReport(strategy string, seed uint64, cases []Case) *report {
	return &report{strategy: strategy, seed: seed, cases: cases, results: map[string]result{}}
}

func (r *report) ran(c Case, hasFailed bool) {
	v := passed
	if hasFailed {
		v = failed
	}
	r.set(c, result{verdict: v})
}

func (r *report) skipped(c Case, reason string) { r.set(c, result{skipped, reason}) }

func (r *report) set(c Case, res result) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.results[c.path()] = res
}

// String is the table: a line for each group, and below it what did not pass.
func (r *report) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var groups []string
	counts := map[string]map[verdict]int{}
	reasons := map[string][]string{}
	var failures []string
	for _, c := range r.cases {
		res := r.results[c.path()]
		if counts[c.Group] == nil {
			groups = append(groups, c.Group)
			counts[c.Group] = map[verdict]int{}
		}
		counts[c.Group][res.verdict]++
		switch {
		case res.verdict == failed:
			failures = append(failures, c.path())
		case res.verdict == skipped && res.reason != notSelected:
			reasons[res.reason] = append(reasons[res.reason], c.path())
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "conformance of %s (seed %d)\n", r.strategy, r.seed)
	tw := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintf(tw, "group\tpassed\tskipped\tfailed\tnot run\t\n")
	total := map[verdict]int{}
	for _, g := range groups {
		n := counts[g]
		_, _ = fmt.Fprintf(tw, "%s\t%d\t%d\t%d\t%d\t\n", g, n[passed], n[skipped], n[failed], n[notRun])
		for v, k := range n {
			total[v] += k
		}
	}
	_, _ = fmt.Fprintf(tw, "all\t%d\t%d\t%d\t%d\t\n", total[passed], total[skipped], total[failed], total[notRun])
	_ = tw.Flush()
	for _, reason := range slices.Sorted(maps.Keys(reasons)) {
		fmt.Fprintf(&b, "skipped, %s: %s\n", reason, strings.Join(reasons[reason], ", "))
	}
	if len(failures) > 0 {
		fmt.Fprintf(&b, "failed: %s\n", strings.Join(failures, ", "))
	}
	return b.String()
}

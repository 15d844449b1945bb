package conformance

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"
)

const notSelected = "not selected"

// Report has the result of each case.
type Report struct {
	Strategy string
	Seed     uint64 // of what cases drew at random: LOCKER_CONFORMANCE_SEED repeats it
	Results  []Result
}

// Result shows how one case ended, and why.
type Result struct {
	Group, Name string
	Rules       []string // of docs/rules.md
	Contract    string   // what the case checks, in a sentence
	Outcome     Outcome
	Took        time.Duration
	Why         string // it failed: the first thing that it said; or was skipped
}

// Outcome is passed, failed, skipped, or not run.
type Outcome string

// The outcomes.
const (
	Passed  Outcome = "passed"
	Failed  Outcome = "failed"
	Skipped Outcome = "skipped"
	NotRun  Outcome = "not run" // left out by go test's -run or -failfast, or the end of a context
)

// Failed reports whether a case failed.
func (r Report) Failed() bool {
	return slices.ContainsFunc(r.Results, func(res Result) bool { return res.Outcome == Failed })
}

// collector makes a Report while cases run.
type collector struct {
	mu     sync.Mutex
	report Report
	at     map[string]int // of results by path
}

func newCollector(strategy string, seed uint64, cases []Case) *collector {
	c := &collector{report: Report{Strategy: strategy, Seed: seed}, at: map[string]int{}}
	for i, of := range cases {
		c.at[of.path()] = i
		c.report.Results = append(c.report.Results, Result{Group: of.Group, Name: of.Name, Rules: of.Rules, Contract: of.Contract, Outcome: NotRun})
	}
	return c
}

func (c *collector) set(of Case, outcome Outcome, took time.Duration, why string) Result {
	c.mu.Lock()
	defer c.mu.Unlock()
	res := &c.report.Results[c.at[of.path()]]
	res.Outcome, res.Took, res.Why = outcome, took, why
	return *res
}

func (c *collector) ran(of Case, failed bool, took time.Duration, why string) Result {
	outcome := Passed
	if failed {
		outcome = Failed
	}
	return c.set(of, outcome, took, why)
}

func (c *collector) result() Report {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.report
	r.Results = slices.Clone(r.Results)
	return r
}

// String returns the table: a line for each group, and below it a line for each reason to skip
// cases, and one for each case that failed: what was promised, and what was seen.
func (r Report) String() string {
	var groups []string
	counts := map[string]map[Outcome]int{}
	reasons := map[string][]string{}
	var failures []string
	total := map[Outcome]int{}
	for _, res := range r.Results {
		if counts[res.Group] == nil {
			groups = append(groups, res.Group)
			counts[res.Group] = map[Outcome]int{}
		}
		counts[res.Group][res.Outcome]++
		total[res.Outcome]++
		path := res.Group + "/" + res.Name
		switch {
		case res.Outcome == Failed:
			seen, _, _ := strings.Cut(res.Why, "\n")
			failures = append(failures, fmt.Sprintf("failed: %s: promised is that %s; seen: %s\n", path, res.Contract, seen))
		case res.Outcome == Skipped && res.Why != notSelected:
			reasons[res.Why] = append(reasons[res.Why], path)
		}
	}
	counts["all"] = total
	var b strings.Builder
	fmt.Fprintf(&b, "conformance of %s (seed %d)\n", r.Strategy, r.Seed)
	tw := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintf(tw, "group\tpassed\tskipped\tfailed\tnot run\t\n")
	for _, g := range append(groups, "all") {
		n := counts[g]
		_, _ = fmt.Fprintf(tw, "%s\t%d\t%d\t%d\t%d\t\n", g, n[Passed], n[Skipped], n[Failed], n[NotRun])
	}
	_ = tw.Flush()
	for _, reason := range slices.Sorted(maps.Keys(reasons)) {
		fmt.Fprintf(&b, "skipped, %s: %s\n", reason, strings.Join(reasons[reason], ", "))
	}
	return b.String() + strings.Join(failures, "")
}

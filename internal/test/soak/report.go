package soak

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// Kind is a kind of violation.
type Kind string

// The kinds of violation that a run looks for.
const (
	// Overlap: two held a key at once.
	Overlap Kind = "overlap"
	// TokenOrder: a later grant has no greater token, or a re-entry another one.
	TokenOrder Kind = "token order"
	// Stall: a free lock was not granted to a waiter while nothing was wrong, or a call
	// went on though its wait was over.
	Stall Kind = "stall"
	// LateLoss: a lease was used past its deadline (it said that it was held, was re-entered,
	// or its Lost was not closed), or renewed after its lock was lost.
	LateLoss Kind = "late loss"
	// NoStep: an operation that is no step of the model of a claim's life.
	NoStep Kind = "no step"
	// Leak: permits were out when all processes had ended, and the TTL of their claims was over.
	Leak Kind = "leak"
	// Unexpected: an error, or the loss of a lease before its deadline, that nothing calls for.
	Unexpected Kind = "unexpected error"
	// Crash: a process ended by itself, or did not finish.
	Crash Kind = "crash"
)

// Violation is a broken promise.
type Violation struct {
	Kind     Kind
	Text     string
	Again    string // flags of the command that does the round once more
	Timeline string // what happened on the key around it, and which faults

	key    uint16
	around span
}

func (v Violation) String() string {
	return fmt.Sprintf("%s: %s\n%sagain: %s\n", v.Kind, v.Text, v.Timeline, v.Again)
}

// These are counted for each strategy on each topology.
const (
	Operations = "operations" // calls of Lock, TryLock, Renew and Unlock, re-entries included
	Granted    = "granted"
	Steps      = "steps"           // of the model, by which the record was replayed
	Unknown    = "unknown"         // calls that a killed process was in
	Lost       = "leases lost"     // and Lost was seen closed
	Regranted  = "regranted"       // grants beside a holder whose lock was lost by design
	Stale      = "stale writes"    // that the resource has refused
	LongestMS  = "longest wait ms" // for a free lock, in ms, while nothing was wrong
	Violations = "violations"
)

var columns = []string{Operations, Granted, Steps, Unknown, Lost, Regranted, Stale, LongestMS, Violations}

// Row has the counts of one strategy on one topology.
type Row struct {
	Topology Topology
	Strategy string
	Count    map[string]int
}

// Report has the findings of a run.
type Report struct {
	Seed       uint64
	Flags      string // those of Config.again
	Dir        string // where the logs of a round with violations are
	Rounds     int
	Rows       []Row
	Faults     map[string]int // by topology and name
	Found      map[Kind]int   // how many violations; of each kind a few are described
	Violations []Violation

	began time.Time
}

// add adds what a round has counted.
func (r *Report) add(t Topology, strategy string, h *history) {
	i := slices.IndexFunc(r.Rows, func(row Row) bool { return row.Topology == t && row.Strategy == strategy })
	if i < 0 {
		i = len(r.Rows)
		r.Rows = append(r.Rows, Row{t, strategy, map[string]int{}})
	}
	count := r.Rows[i].Count
	longest := max(count[LongestMS], h.count[LongestMS])
	for name, n := range h.count {
		count[name] += n
	}
	count[LongestMS] = longest
	for k, n := range h.found {
		r.Found[k] += n
		count[Violations] += n
	}
}

// Operations returns all calls that were checked.
func (r *Report) Operations() (n int) {
	for _, row := range r.Rows {
		n += row.Count[Operations]
	}
	return n
}

// String returns a summary in a table, and each violation.
func (r *Report) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d operations checked, %d rounds, seed %d, found: %v\n\n", r.Operations(), r.Rounds, r.Seed, r.Found)
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "topology\tstrategy\t%s\t\n", strings.Join(columns, "\t"))
	for _, row := range r.Rows {
		fmt.Fprintf(w, "%s\t%s\t", row.Topology, row.Strategy)
		for _, name := range columns {
			fmt.Fprintf(w, "%d\t", row.Count[name])
		}
		fmt.Fprintln(w)
	}
	_ = w.Flush()
	b.WriteString("\nfaults:")
	for _, name := range slices.Sorted(maps.Keys(r.Faults)) {
		fmt.Fprintf(&b, " %s %d", name, r.Faults[name])
	}
	b.WriteString("\n")
	for _, v := range r.Violations {
		fmt.Fprintf(&b, "\n%v", v)
	}
	return b.String()
}

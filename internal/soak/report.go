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

// Kinds of violation that a run looks for.
const (
	// Overlap: two held a key at once.
	Overlap Kind = "overlap"
	// TokenOrder: a later grant has no greater token, or a re-entry another one.
	TokenOrder Kind = "token order"
	// Outlived: a lease said that it was held at or after its deadline, also to
	// the first question after a freeze, or was re-entered then.
	Outlived Kind = "outlived"
	// LateLoss: Lost was closed too long after the deadline; or a lease went on
	// for longer than its TTL after its lock was lost with the data.
	LateLoss Kind = "late loss"
	// FalseLoss: a lease was lost before its deadline for no reason.
	FalseLoss Kind = "false loss"
	// Stall: somebody waited too long for a free lock while the store was healthy.
	Stall Kind = "stall"
	// NoOrder: no order of the operations on a key explains their answers.
	NoOrder Kind = "no order"
	// WrongAnswer: a call was answered as it must not be, whatever the state of the lock.
	WrongAnswer Kind = "wrong answer"
	// Unexpected: an error that nothing calls for.
	Unexpected Kind = "unexpected error"
	// Unavailable: ErrUnavailable, at once, while nothing was wrong.
	Unavailable Kind = "unavailable"
	// Slow: a call went on though its wait was over.
	Slow Kind = "slow"
	// Overlong: a lock is kept in the store for longer than any lease lasts.
	Overlong Kind = "overlong"
	// Overwritten: something at a key that is no lock was touched.
	Overwritten Kind = "overwritten"
	// Unfair: processes that waited were overtaken by others more often than turns explain
	// (only with [Strategy].Fair).
	Unfair Kind = "unfair"
	// LeakedKey, LeakedConnection, LeakedGoroutine and LeakedMemory were left after the
	// end.
	LeakedKey        Kind = "leaked key"
	LeakedConnection Kind = "leaked connection"
	LeakedGoroutine  Kind = "leaked goroutine"
	LeakedMemory     Kind = "leaked memory"
	// Stuck: a process did not come to its end. Crash: it came to it early.
	Stuck Kind = "stuck"
	Crash Kind = "crash"
)

// Violation is a broken promise.
type Violation struct {
	Kind     Kind
	Strategy string
	Key      string // "" if it is about none
	Text     string
	Seed     uint64 // of the round
	Again    string // flags of the command that runs the round once more
	Timeline string // what happened on the key around it, and which faults
	Picture  string // an HTML file with the operations that have no order, if any

	around  span
	picture func(path string) error
}

func (v Violation) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s", v.Strategy, v.Kind)
	if v.Key != "" {
		fmt.Fprintf(&b, " on %s", v.Key)
	}
	fmt.Fprintf(&b, ": %s\n", v.Text)
	if v.Timeline != "" {
		b.WriteString(v.Timeline)
	}
	if v.Picture != "" {
		fmt.Fprintf(&b, "picture: %s\n", v.Picture)
	}
	fmt.Fprintf(&b, "seed %d; again: %s\n", v.Seed, v.Again)
	return b.String()
}

// Stats are counts of one strategy.
type Stats struct {
	Strategy string

	Locks, Tries, Reentries, Renewals, Unlocks int // calls

	Granted     int
	Refused     int // ErrNotAcquired
	Unavailable int // ErrUnavailable
	Unknown     int // calls that a killed process was in
	Lost        int // leases whose Lost was seen closed
	Excused     int // grants beside a hold that was lost with the data
	Overdue     int // leases in use when their first deadline had passed, and nothing was wrong
	Ended       int // of these, that had not been renewed
	Writes      int // to the guarded resource
	Stale       int // writes it refused
	Processes   int // that ran

	Faults map[string]int
	Found  map[Kind]int // violations

	KeptOut   int // re-entries refused while nothing was wrong
	Waited    int // for another process's turn, nothing being wrong, of a strategy that is Fair
	Overtaken int // of these, after more of another process's than turns explain
	Releases  int // that woke somebody or should have, nothing being wrong, of one that is Notified
	Unnoticed int // of these, that did not do so at once

	Windows   int // in which an order was looked for
	Largest   int // operations in one of them
	Undecided int // windows given up
	Strict    int // refusals that had to be explained by a holder

	Longest time.Duration // that somebody waited for a free lock while nothing was wrong
}

func newStats(strategy string) Stats {
	return Stats{Strategy: strategy, Faults: map[string]int{}, Found: map[Kind]int{}}
}

// Operations are all calls that were checked.
func (s Stats) Operations() int { return s.Locks + s.Tries + s.Reentries + s.Renewals + s.Unlocks }

func (s *Stats) count(r record) {
	switch {
	case r.kind == recLock && r.flags&flagInner != 0:
		s.Reentries++
	case r.kind == recLock && r.flags&flagTry != 0:
		s.Tries++
	case r.kind == recLock:
		s.Locks++
	case r.kind == recRenew:
		s.Renewals++
	case r.kind == recUnlock:
		s.Unlocks++
	}
}

func (s *Stats) refused(a attempt) {
	if !a.result.available() {
		s.Unavailable++
	} else {
		s.Refused++
	}
}

// add adds what another round has counted.
func (s *Stats) add(o Stats) {
	for _, n := range []struct{ sum, more *int }{
		{&s.Locks, &o.Locks}, {&s.Tries, &o.Tries}, {&s.Reentries, &o.Reentries}, {&s.Renewals, &o.Renewals}, {&s.Unlocks, &o.Unlocks},
		{&s.Granted, &o.Granted}, {&s.Refused, &o.Refused}, {&s.Unavailable, &o.Unavailable}, {&s.Unknown, &o.Unknown},
		{&s.Lost, &o.Lost}, {&s.Excused, &o.Excused}, {&s.Writes, &o.Writes}, {&s.Stale, &o.Stale}, {&s.Overdue, &o.Overdue}, {&s.Ended, &o.Ended}, {&s.Processes, &o.Processes},
		{&s.KeptOut, &o.KeptOut}, {&s.Waited, &o.Waited}, {&s.Overtaken, &o.Overtaken}, {&s.Releases, &o.Releases}, {&s.Unnoticed, &o.Unnoticed},
		{&s.Windows, &o.Windows}, {&s.Undecided, &o.Undecided}, {&s.Strict, &o.Strict},
	} {
		*n.sum += *n.more
	}
	for name, n := range o.Faults {
		s.Faults[name] += n
	}
	for kind, n := range o.Found {
		s.Found[kind] += n
	}
	s.Largest = max(s.Largest, o.Largest)
	s.Longest = max(s.Longest, o.Longest)
}

// Report is what a run has found.
type Report struct {
	Seed       uint64
	Dir        string // where the logs of a round with violations are
	Took       time.Duration
	Rounds     int
	Stats      []Stats // by strategy
	Violations []Violation
}

func newReport(cfg Config) *Report {
	r := &Report{Seed: cfg.Seed, Dir: cfg.Dir}
	for _, s := range cfg.Strategies {
		r.Stats = append(r.Stats, newStats(s.Name))
	}
	return r
}

// Operations are all calls that were checked.
func (r *Report) Operations() int {
	n := 0
	for _, s := range r.Stats {
		n += s.Operations()
	}
	return n
}

// Has reports whether a violation of the kind was found.
func (r *Report) Has(kind Kind) bool {
	return slices.ContainsFunc(r.Violations, func(v Violation) bool { return v.Kind == kind })
}

// line is the report in a few words.
func (r *Report) line() string {
	return fmt.Sprintf("%d operations, %d violations", r.Operations(), r.found())
}

func (r *Report) found() int {
	n := 0
	for _, s := range r.Stats {
		for _, m := range s.Found {
			n += m
		}
	}
	return n
}

// String is a summary in tables, and each violation.
func (r *Report) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d operations checked in %v, %d rounds, seed %d: %d violations\n\n", r.Operations(), r.Took.Round(time.Second), r.Rounds, r.Seed, r.found())
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	r.row(w, "", func(s Stats) any { return s.Strategy })
	for _, c := range []struct {
		name string
		of   func(Stats) any
	}{
		{"operations", func(s Stats) any { return s.Operations() }},
		{"Lock", func(s Stats) any { return s.Locks }},
		{"TryLock", func(s Stats) any { return s.Tries }},
		{"re-entries", func(s Stats) any { return s.Reentries }},
		{"Renew", func(s Stats) any { return s.Renewals }},
		{"Unlock", func(s Stats) any { return s.Unlocks }},
		{"granted", func(s Stats) any { return s.Granted }},
		{"not acquired", func(s Stats) any { return s.Refused }},
		{"unavailable", func(s Stats) any { return s.Unavailable }},
		{"outcome unknown", func(s Stats) any { return s.Unknown }},
		{"leases lost", func(s Stats) any { return s.Lost }},
		{"lost with the data, and regranted", func(s Stats) any { return s.Excused }},
		{"to be renewed, nothing being wrong", func(s Stats) any { return s.Overdue }},
		{"not renewed", func(s Stats) any { return s.Ended }},
		{"kept out of their own lock", func(s Stats) any { return s.KeptOut }},
		{"waits for another's turn", func(s Stats) any { return s.Waited }},
		{"overtaken", func(s Stats) any { return s.Overtaken }},
		{"releases to wake somebody", func(s Stats) any { return s.Releases }},
		{"did not at once", func(s Stats) any { return s.Unnoticed }},
		{"guarded writes", func(s Stats) any { return s.Writes }},
		{"refused as stale", func(s Stats) any { return s.Stale }},
		{"processes", func(s Stats) any { return s.Processes }},
		{"faults", func(s Stats) any { return sum(s.Faults) }},
		{"windows ordered", func(s Stats) any { return s.Windows }},
		{"of them undecided", func(s Stats) any { return s.Undecided }},
		{"operations in the largest", func(s Stats) any { return s.Largest }},
		{"refusals explained", func(s Stats) any { return s.Strict }},
		{"longest wait for a free lock", func(s Stats) any { return s.Longest.Round(time.Millisecond) }},
		{"violations", func(s Stats) any { return sum(s.Found) }},
	} {
		r.row(w, c.name, c.of)
	}
	_ = w.Flush()
	b.WriteString("\nfaults: ")
	all := map[string]int{}
	for _, s := range r.Stats {
		for name, n := range s.Faults {
			all[name] += n
		}
	}
	for i, name := range slices.Sorted(maps.Keys(all)) {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%s %d", name, all[name])
	}
	b.WriteString("\n")
	for _, v := range r.Violations {
		fmt.Fprintf(&b, "\n%v", v)
	}
	return b.String()
}

func (r *Report) row(w *tabwriter.Writer, name string, of func(Stats) any) {
	fmt.Fprintf(w, "%s\t", name)
	for _, s := range r.Stats {
		fmt.Fprintf(w, "%v\t", of(s))
	}
	fmt.Fprintln(w)
}

func sum[K comparable](m map[K]int) (n int) {
	for _, v := range m {
		n += v
	}
	return n
}

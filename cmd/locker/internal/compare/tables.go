package compare

import (
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/distlock/locker/conformance"
)

// row is a line of a table: what it is about, and a cell for each strategy.
type row struct {
	Title string
	Cells []cell
}

// cell is a figure or an outcome.
type cell struct {
	Text string
	Mark string // "good", "bad", or ""
}

// titles name the subjects of the suite's groups.
var titles = []struct{ group, title string }{
	{"exclusion", "mutual exclusion"},
	{"ownership", "only the holder releases"},
	{"reentry", "re-entry"},
	{"owners", "named owners"},
	{"several", "several keys, readers, permits"},
	{"lease", "lease, renewal and loss"},
	{"waiting", "waiting and order"},
	{"wake-ups", "wake-ups"},
	{"hand-over", "hand-over in the process"},
	{"load", "hundreds and thousands of callers"},
	{"fencing", "fencing tokens"},
	{"keys", "any key, others' data"},
	{"hygiene", "nothing is left behind"},
	{"closing", "Close"},
	{"admin", "inspect and force unlock"},
	{"failure", "replies lost, commands twice"},
	{"outage", "the server is out of reach"},
	{"faults", "connections cut, server killed"},
	{"processes", "processes killed and frozen"},
}

// guarantees is the table of the suite: strategy by guarantee, and by fault.
func (r *Result) guarantees() (rows []row) {
	for _, t := range titles {
		line := row{Title: t.title}
		if t.group == "faults" && !r.OwnServers {
			line.Title = "connections cut" // their servers are not killed
		}
		some := false
		for _, s := range r.Strategies {
			c := outcome(s, t.group)
			some = some || c.Text != "–"
			line.Cells = append(line.Cells, c)
		}
		if some {
			rows = append(rows, line)
		}
	}
	for _, f := range []struct{ title, name, yes, no string }{
		{"first come, first served, across processes", "FIFOAcrossLockers", "yes", "no"},
		{"a release wakes the next process", "NotifiedWake", "yes", "polls"},
		{"an owner re-enters from another process", "SharedOwnerCounts", "yes", "no"},
	} {
		line := row{Title: f.title}
		for _, s := range r.Strategies {
			c := cell{Text: f.no}
			if ok, ran := s.passed(f.name); ran && ok {
				c = cell{f.yes, "good"}
			} else if ran {
				c = cell{"fails", "bad"}
			} else if s.Suite == nil {
				c = cell{Text: "–"}
			}
			line.Cells = append(line.Cells, c)
		}
		rows = append(rows, line)
	}
	return rows
}

func outcome(s *Strategy, group string) cell {
	if s.Suite == nil {
		return cell{Text: "–"}
	}
	passed, failed := 0, 0
	for _, res := range s.Suite.Results {
		switch {
		case res.Group != group:
		case res.Outcome == conformance.Passed:
			passed++
		case res.Outcome == conformance.Failed:
			failed++
		}
	}
	switch {
	case failed > 0:
		return cell{fmt.Sprintf("%d of %d fail", failed, passed+failed), "bad"}
	case passed > 0:
		return cell{fmt.Sprintf("%d pass", passed), "good"}
	}
	return cell{Text: "–"}
}

// figures is the table of the benchmarks.
func (r *Result) figures() (rows []row) {
	optional := func(v *float64) string {
		if v == nil {
			return "–"
		}
		return figure(*v)
	}
	for _, f := range []struct {
		title string
		of    func(b *Bench) string
	}{
		{"free key, 1 goroutine: pairs/s", func(b *Bench) string { return figure(b.Solo.PerS) }},
		{"… Lock + Unlock, median / p99, µs", func(b *Bench) string { return figure(b.Solo.P50US) + " / " + figure(b.Solo.P99US) }},
		{fmt.Sprintf("free keys, %d goroutines: pairs/s", wideGoroutines), func(b *Bench) string { return figure(b.Wide.PerS) }},
		{fmt.Sprintf("one key, %d processes: grants/s", contenders), func(b *Bench) string { return figure(b.Contended.GrantsPerS) }},
		{"… wait, median / p99 / longest, ms", func(b *Bench) string {
			return figure(b.Contended.WaitP50MS) + " / " + figure(b.Contended.WaitP99MS) + " / " + figure(b.Contended.WaitMaxMS)
		}},
		{"… Unlock to next grant, median / p99, µs", func(b *Bench) string {
			return figure(b.Contended.HandOverP50US) + " / " + figure(b.Contended.HandOverP99US)
		}},
		{"… smallest share ÷ largest, of processes", func(b *Bench) string { return figure(b.Contended.Fairness) }},
		{"… commands to Redis per grant", func(b *Bench) string { return optional(b.Contended.CommandsPerGrant) }},
		{"… Redis CPU per grant, µs", func(b *Bench) string { return optional(b.Contended.ServerCPUPerGrant) }},
		{"a process that waits: commands/s", func(b *Bench) string { return optional(b.WaitingCommandsPerS) }},
	} {
		line := row{Title: f.title}
		for _, s := range r.Strategies {
			c := cell{Text: "–"}
			if s.Bench != nil {
				c.Text = f.of(s.Bench)
			}
			line.Cells = append(line.Cells, c)
		}
		rows = append(rows, line)
	}
	return rows
}

// Text is the result for a terminal.
func (r *Result) Text() string {
	var b strings.Builder
	for _, t := range []struct {
		title string
		rows  []row
	}{{"CONFORMANCE", r.guarantees()}, {"FIGURES", r.figures()}} {
		w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
		fmt.Fprintln(w, strings.Join(append([]string{t.title}, r.names()...), "\t"))
		for _, line := range t.rows {
			fmt.Fprint(w, line.Title)
			for _, c := range line.Cells {
				fmt.Fprint(w, "\t", c.Text)
			}
			fmt.Fprintln(w)
		}
		_ = w.Flush()
		fmt.Fprintln(&b)
	}
	for _, f := range r.failures() {
		fmt.Fprintln(&b, f)
	}
	for _, a := range r.Advice {
		fmt.Fprintf(&b, "%s (%s): %s\n", a.Need, a.What, a.verdict())
	}
	fmt.Fprintf(&b, "\nOn %s; %s.\n", r.Server, r.Machine)
	for _, l := range r.Limits {
		fmt.Fprintln(&b, l)
	}
	return b.String()
}

func (a Advice) verdict() string {
	if a.Strategy == "" {
		return a.Because
	}
	return a.Strategy + ": " + a.Because
}

// Markdown is the result for a page.
func (r *Result) Markdown() string {
	var b strings.Builder
	for _, t := range []struct {
		title string
		rows  []row
	}{{"Conformance", r.guarantees()}, {"Figures", r.figures()}} {
		fmt.Fprintf(&b, "| %s | %s |\n|---|%s\n", t.title, strings.Join(r.names(), " | "), strings.Repeat("---|", len(r.Strategies)))
		for _, line := range t.rows {
			fmt.Fprintf(&b, "| %s |", line.Title)
			for _, c := range line.Cells {
				fmt.Fprintf(&b, " %s |", c.Text)
			}
			fmt.Fprintln(&b)
		}
		fmt.Fprintln(&b)
	}
	for _, f := range r.failures() {
		fmt.Fprintf(&b, "- %s\n", f)
	}
	for _, a := range r.Advice {
		fmt.Fprintf(&b, "- **%s** (%s): %s\n", a.Need, a.What, a.verdict())
	}
	fmt.Fprintf(&b, "\nOn %s; %s. %s\n", r.Server, r.Machine, strings.Join(r.Limits, " "))
	return b.String()
}

func (r *Result) names() (names []string) {
	for _, s := range r.Strategies {
		names = append(names, s.Name)
	}
	return names
}

// failures has a line for each case that failed, and for each strategy of which something
// is missing.
func (r *Result) failures() (all []string) {
	for _, s := range r.Strategies {
		if s.Error != "" {
			all = append(all, s.Name+": "+s.Error)
		}
		if s.Suite == nil {
			continue
		}
		for _, res := range s.Suite.Results {
			if res.Outcome == conformance.Failed {
				seen, _, _ := strings.Cut(res.Why, "\n")
				all = append(all, fmt.Sprintf("%s fails %s/%s: promised is that %s; seen: %s", s.Name, res.Group, res.Name, res.Contract, seen))
			}
		}
	}
	return all
}

// Failed says whether anything has.
func (r *Result) Failed() bool {
	return slices.ContainsFunc(r.Strategies, func(s *Strategy) bool { return s.Error != "" || s.Suite == nil || s.Suite.Failed > 0 })
}

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
	Title  string
	About  string
	Figure string // what the cells' figures are of, if the title does not say so
	Cells  []cell
}

// cell is a figure or an outcome.
type cell struct {
	Text string
	Mark string // "good", "bad", or ""
	More string // what stands below the text, on the page
	At   string // where the number is in the JSON
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

// guarantees returns the table of the suite, by guarantee and by fault: where strategies differ. The others
// are the line of allPass.
func (r *Result) guarantees() (rows []row) {
	for _, t := range titles {
		line := row{Title: r.titleOf(t.group, t.title)}
		some := false
		for _, s := range r.Strategies {
			c := outcome(s, t.group)
			some = some || c.Text != "–"
			line.Cells = append(line.Cells, c)
		}
		if some && !r.passes(t.group) {
			rows = append(rows, line)
		}
	}
	return rows
}

// titleOf returns the title of a group; servers of others are not killed.
func (r *Result) titleOf(group, title string) string {
	if group == "faults" && !r.OwnServers {
		return "connections cut"
	}
	return title
}

// passes reports whether all strategies that the suite has run on pass the cases of a group.
func (r *Result) passes(group string) bool {
	some := false
	for _, s := range r.Strategies {
		if s.Suite == nil {
			continue
		}
		if some = true; outcome(s, group).Mark != "good" {
			return false
		}
	}
	return some
}

// allPass says what all strategies that the suite has run on pass; "" without a suite.
func (r *Result) allPass() string {
	var passed []string
	for _, t := range titles {
		if r.passes(t.group) {
			passed = append(passed, r.titleOf(t.group, t.title))
		}
	}
	var on []string
	cases := 0
	for _, s := range r.Strategies {
		if s.Suite != nil {
			on, cases = append(on, s.Name), cases+s.Suite.Passed
		}
	}
	if len(passed) == 0 {
		return ""
	}
	return fmt.Sprintf("The conformance suite: %d cases passed. All of %s pass: %s.", cases, strings.Join(on, ", "), strings.Join(passed, "; "))
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
		return cell{Text: fmt.Sprintf("%d of %d fail", failed, passed+failed), Mark: "bad", At: "suite/" + group + "/" + s.Name}
	case passed > 0:
		return cell{Text: fmt.Sprintf("%d pass", passed), Mark: "good", At: "suite/" + group + "/" + s.Name}
	}
	return cell{Text: "–"}
}

// figures returns the table of the benchmarks.
func (r *Result) figures() (rows []row) {
	for _, m := range metrics {
		line := row{Title: m.title}
		if m.unit != "" {
			line.Title += ", " + m.unit
		}
		some := false
		for _, s := range r.Strategies {
			some = some || s.Figures[m.id] != nil
			line.Cells = append(line.Cells, cell{Text: s.text(m.id), At: "figures/" + m.id + "/" + s.Name})
		}
		if some {
			rows = append(rows, line)
		}
	}
	return rows
}

// seenFaults returns the table of the faults.
func (r *Result) seenFaults() (rows []row) {
	for _, kind := range faultKinds {
		line, some := row{Title: "the server is " + kind}, false
		for _, s := range r.Strategies {
			c := cell{Text: "–"}
			for _, f := range s.Faults {
				if f.Kind == kind {
					some = true
					c = cell{Text: f.Told() + "; " + f.Grant() + "; " + f.Overlap(), At: "faults/" + kind + "/" + s.Name}
				}
			}
			line.Cells = append(line.Cells, c)
		}
		if some {
			rows = append(rows, line)
		}
	}
	return rows
}

// text returns the figure of a metric.
func (s *Strategy) text(id string) string {
	f := s.Figures[id]
	if commands := id == "commands" || id == "waiting"; f == nil && commands && s.Error == "" && s.Strategy != "memory" && families[s.Strategy] != "Redis" {
		return "not counted" // these servers do not say it
	}
	return f.text()
}

// table is a title and its rows.
type table struct {
	Title string
	Rows  []row
}

// tables returns all tables that have rows.
func (r *Result) tables() (all []table) {
	for _, t := range []table{{"What each strategy promises: it does not depend on this run", r.promises()}, {"Figures: median (least to greatest run; events)", r.figures()}, {"Faults: the holder knows; the next grant; both at once", r.seenFaults()}, {"Conformance: where strategies differ", r.guarantees()}} {
		if len(t.Rows) > 0 {
			all = append(all, t)
		}
	}
	return all
}

// about has the lines that say where the figures are from.
func (r *Result) about() (lines []string) {
	lines = append(lines, fmt.Sprintf("%s. %s A constant piece of work took %s ms between the runs. Seed %d.", r.Machine, r.Load.averages(), r.Load.Calibration.text(), r.Seed))
	seen := ""
	for _, s := range r.Strategies {
		if s.Store != seen {
			lines = append(lines, s.Name+": "+s.Store+".")
		}
		seen = s.Store
	}
	return append(lines, r.Limits...)
}

// warning says that the machine was busy, if it was.
func (r *Result) warning() string {
	if r.Load.Busy == "" {
		return ""
	}
	text := "This machine was busy: " + r.Load.Busy + "."
	if r.Failed() {
		text += " What failed, below, may have failed for that reason: compare again when it is quiet."
	}
	return text
}

// Text returns the result for a terminal.
func (r *Result) Text() string {
	var b strings.Builder
	for _, t := range r.tables() {
		w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
		fmt.Fprintln(w, strings.Join(append([]string{strings.ToUpper(t.Title)}, r.names()...), "\t"))
		for _, line := range t.Rows {
			fmt.Fprint(w, line.Title)
			for _, c := range line.Cells {
				fmt.Fprint(w, "\t", c.Text)
			}
			fmt.Fprintln(w)
		}
		_ = w.Flush()
		fmt.Fprintln(&b)
	}
	for _, line := range r.findings() {
		fmt.Fprintln(&b, line)
	}
	fmt.Fprintln(&b)
	for _, a := range r.Advice {
		fmt.Fprintf(&b, "%s (%s): %s\n", a.Need, a.What, a.verdict())
		for _, p := range a.Prices {
			fmt.Fprintf(&b, "    %s\n", p.Line())
		}
	}
	fmt.Fprintln(&b)
	if warning := r.warning(); warning != "" {
		fmt.Fprintln(&b, warning)
	}
	for _, line := range r.about() {
		fmt.Fprintln(&b, line)
	}
	return b.String()
}

// Line returns the price in a line.
func (p Price) Line() string {
	return p.Strategy + ": " + strings.Join(slices.DeleteFunc([]string{p.How, p.Figures}, func(s string) bool { return s == "" }), "; ")
}

// Markdown returns the result for a page: a column for each strategy.
func (r *Result) Markdown() string {
	var b strings.Builder
	for _, t := range r.tables() {
		fmt.Fprintf(&b, "| %s | %s |\n|---|%s\n", t.Title, strings.Join(r.names(), " | "), strings.Repeat("---|", len(r.Strategies)))
		for _, line := range t.Rows {
			fmt.Fprintf(&b, "| %s |", line.Title)
			for _, c := range line.Cells {
				fmt.Fprintf(&b, " %s |", c.Text)
			}
			fmt.Fprintln(&b)
		}
		fmt.Fprintln(&b)
	}
	for _, line := range r.findings() {
		fmt.Fprintf(&b, "- %s\n", line)
	}
	for _, a := range r.Advice {
		fmt.Fprintf(&b, "- **%s** (%s): %s\n", a.Need, a.What, a.verdict())
		for _, p := range a.Prices {
			fmt.Fprintf(&b, "  - %s\n", p.Line())
		}
	}
	fmt.Fprintln(&b)
	if warning := r.warning(); warning != "" {
		fmt.Fprintf(&b, "**%s** ", warning)
	}
	fmt.Fprintln(&b, strings.Join(r.about(), " "))
	return b.String()
}

// findings returns the lines below the tables.
func (r *Result) findings() (lines []string) {
	lines = append(lines, r.Failures()...)
	if all := r.allPass(); all != "" {
		lines = append(lines, all)
	}
	return append(lines, r.only()...)
}

func (r *Result) names() []string { return namesOf(r.Strategies) }

func namesOf(all []*Strategy) (names []string) {
	for _, s := range all {
		names = append(names, s.Name)
	}
	return names
}

// Failures has a line for each case that failed, and for each strategy of which something
// is missing.
func (r *Result) Failures() (all []string) {
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
	return slices.ContainsFunc(r.Strategies, func(s *Strategy) bool { return s.Error != "" || s.Suite != nil && s.Suite.Failed > 0 })
}

// Command suitetable reads what go test -json says of the conformance suite's runs on
// strategies, tells of each case as it ends, and prints a table: of groups by
// strategies for each topology, or with -cases of cases by strategies.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"
	"text/tabwriter"
	"unicode"

	"github.com/distlock/locker/conformance"
	"github.com/distlock/locker/conformance/redisconformance"
)

func main() {
	cases := flag.Bool("cases", false, "a line for each case instead of each group")
	flag.Parse()
	ok, err := run(os.Stdin, os.Stdout, *cases)
	if err != nil {
		fmt.Fprintln(os.Stderr, "suitetable:", err)
	}
	if err != nil || !ok {
		os.Exit(1)
	}
}

// event is a line of go test -json.
type event struct {
	Action, Package, Test, Output string
	Elapsed                       float64 // s
}

// result is how a case ended.
type result struct {
	topology, strategy string
	group, name        string
	failed             bool
}

type table struct {
	results []result
	broken  bool // something failed
}

func run(in io.Reader, out io.Writer, cases bool) (ok bool, err error) {
	var t table
	outputs := make(map[string][]string) // by package and test
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var e event
		if json.Unmarshal(lines.Bytes(), &e) != nil {
			fmt.Fprintln(out, lines.Text()) // of the go command itself
			continue
		}
		id := e.Package + " " + e.Test
		switch e.Action {
		case "build-output":
			fmt.Fprint(out, e.Output)
		case "output":
			outputs[id] = append(outputs[id], e.Output)
		case "fail":
			fmt.Fprint(out, strings.Join(outputs[id], ""))
			t.broken = true
		}
		if e.Action == "pass" || e.Action == "fail" {
			delete(outputs, id)
			if r, ok := caseOf(e); ok {
				t.results = append(t.results, r)
				fmt.Fprintf(out, "%-4s  %-13s  %-8s  %s/%s (%.1fs)\n", e.Action, r.strategy, r.topology, r.group, r.name, e.Elapsed)
			}
		}
	}
	if err := lines.Err(); err != nil {
		return false, err
	}
	if cases {
		err = t.printCases(out)
	} else {
		err = t.printGroups(out)
	}
	return !t.broken, err
}

// caseOf reads the end of a test: TestConformance<Topology>/parallel/group/Case, or a
// level deeper, or the same of TestFake<Kind>, which runs on a fake of that kind.
func caseOf(e event) (r result, ok bool) {
	parts := strings.Split(e.Test, "/")
	n := len(parts)
	if n < 4 || parts[n-3] != "parallel" && parts[n-3] != "serial" {
		return r, false
	}
	r = result{topologyOf(parts[0]), path.Base(e.Package), parts[n-2], parts[n-1], e.Action == "fail"}
	switch {
	case strings.HasPrefix(parts[0], "TestFake"):
		r.strategy = "fake"
	case r.strategy == "conformance":
		r.strategy = "memory" // the suite's own test
	}
	return r, true
}

// topologyOf makes "two dead" of TestConformanceTwoDead.
func topologyOf(test string) string {
	name := strings.TrimPrefix(strings.TrimPrefix(test, "TestConformance"), "TestFake")
	if name == "" || name == "ServerFaults" {
		return "single"
	}
	if on, ok := strings.CutPrefix(name, "On"); ok && unicode.IsUpper(rune(on[0])) {
		name = on
	}
	var b strings.Builder
	for i, c := range name {
		if i > 0 && unicode.IsUpper(c) {
			b.WriteByte(' ')
		}
		b.WriteRune(unicode.ToLower(c))
	}
	return b.String()
}

// distinct are the values of f in the order in which they come.
func (t *table) distinct(f func(result) string) (all []string) {
	for _, r := range t.results {
		if v := f(r); !slices.Contains(all, v) {
			all = append(all, v)
		}
	}
	return all
}

func (t *table) strategies() []string {
	return t.distinct(func(r result) string { return r.strategy })
}

// printGroups writes a table for each topology: how many cases of a group have passed,
// and if they are fewer, of how many.
func (t *table) printGroups(out io.Writer) error {
	for _, topology := range t.distinct(func(r result) string { return r.topology }) {
		of := table{results: slices.DeleteFunc(slices.Clone(t.results), func(r result) bool { return r.topology != topology })}
		fmt.Fprintln(out)
		tw := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
		fmt.Fprintf(tw, "%s\t%s\t\n", topology, strings.Join(of.strategies(), "\t"))
		for _, group := range append(groups(), "all") {
			if line, ran := of.groupLine(group); ran {
				fmt.Fprintf(tw, "%s\t%s\t\n", group, line)
			}
		}
		if err := tw.Flush(); err != nil {
			return err
		}
	}
	return nil
}

func (t *table) groupLine(group string) (line string, ran bool) {
	var cells []string
	for _, s := range t.strategies() {
		passed, failed := 0, 0
		for _, r := range t.results {
			switch {
			case r.strategy != s || group != "all" && r.group != group:
			case r.failed:
				failed++
			default:
				passed++
			}
		}
		cell := fmt.Sprint(passed)
		switch {
		case failed > 0:
			cell = fmt.Sprintf("%d of %d", passed, passed+failed)
		case passed == 0:
			cell = "n/a"
		}
		cells = append(cells, cell)
		ran = ran || passed+failed > 0
	}
	return strings.Join(cells, "\t"), ran
}

// printCases writes a line for each case.
func (t *table) printCases(out io.Writer) error {
	fmt.Fprintln(out)
	tw := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	strategies := t.strategies()
	fmt.Fprintf(tw, "\t%s\t\n", strings.Join(strategies, "\t"))
	group, done := "", make(map[string]bool)
	for _, c := range cases() {
		line, ran := t.caseLine(c)
		if !ran || done[c.Group+c.Name] {
			continue
		}
		done[c.Group+c.Name] = true
		if c.Group != group {
			group = c.Group
			fmt.Fprintf(tw, "%s%s\n", group, strings.Repeat("\t", len(strategies)+1))
		}
		fmt.Fprintf(tw, "  %s\t%s\t\n", c.Name, line)
	}
	return tw.Flush()
}

func (t *table) caseLine(c conformance.Case) (line string, ran bool) {
	var cells []string
	for _, s := range t.strategies() {
		cell := "n/a"
		for _, r := range t.results { // it may have run on several topologies
			switch {
			case r.strategy != s || r.group != c.Group || r.name != c.Name:
			case r.failed:
				cell = "FAILED"
			case cell == "n/a":
				cell = "ok"
			}
		}
		cells = append(cells, cell)
		ran = ran || cell != "n/a"
	}
	return strings.Join(cells, "\t"), ran
}

// cases are the suite's in its order, each group's together.
func cases() []conformance.Case {
	all := slices.Concat(
		conformance.Cases(),
		redisconformance.Strategy{}.Cases(),
		redisconformance.Strategy{Topology: redisconformance.Cluster}.Cases(),
		redisconformance.Quorum{}.Cases(),
	)
	var groups []string
	for _, c := range all {
		if !slices.Contains(groups, c.Group) {
			groups = append(groups, c.Group)
		}
	}
	slices.SortStableFunc(all, func(a, b conformance.Case) int {
		return slices.Index(groups, a.Group) - slices.Index(groups, b.Group)
	})
	return all
}

func groups() (all []string) {
	for _, c := range cases() {
		if !slices.Contains(all, c.Group) {
			all = append(all, c.Group)
		}
	}
	return all
}

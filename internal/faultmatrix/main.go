// Command faultmatrix reads what go test -json says of the conformance suite's runs
// on strategies, and prints which strategy comes through which fault. What failed is
// printed before in full.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/distlock/locker/conformance"
	"github.com/distlock/locker/conformance/redisconformance"
)

func main() {
	ok, err := run(os.Stdin, os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, "faultmatrix:", err)
	}
	if err != nil || !ok {
		os.Exit(1)
	}
}

// event is a line of go test -json.
type event struct {
	Action, Package, Test, Output string
}

// cell is a case on a strategy.
type cell struct{ path, strategy string }

type matrix struct {
	strategies []string
	results    map[cell]string
	broken     bool // something that is no case failed
}

func run(in io.Reader, out io.Writer) (ok bool, err error) {
	m := matrix{results: make(map[cell]string)}
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
			m.note(e)
		case "pass":
			m.note(e)
		}
		if e.Action == "pass" || e.Action == "fail" {
			delete(outputs, id)
		}
	}
	if err := lines.Err(); err != nil {
		return false, err
	}
	return !m.broken, m.print(out)
}

// note takes down the end of a test.
func (m *matrix) note(e event) {
	strategy := path.Base(e.Package)
	if e.Action == "fail" {
		m.broken = true
	}
	// TestConformance.../parallel/group/Case, or a level deeper
	parts := strings.Split(e.Test, "/")
	n := len(parts)
	if n < 4 || parts[n-3] != "parallel" && parts[n-3] != "serial" {
		return
	}
	if !slices.Contains(m.strategies, strategy) {
		m.strategies = append(m.strategies, strategy)
	}
	at := cell{parts[n-2] + "/" + parts[n-1], strategy}
	switch {
	case e.Action == "fail":
		m.results[at] = "FAILED"
	case m.results[at] == "": // it may run on several topologies
		m.results[at] = "ok"
	}
}

// print writes a line for each case that is about a fault.
func (m *matrix) print(out io.Writer) error {
	fmt.Fprintln(out)
	tw := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(tw, "\t%s\t\n", strings.Join(m.strategies, "\t"))
	group, done := "", make(map[string]bool)
	for _, c := range cases() {
		at := c.Group + "/" + c.Name
		if done[at] || !m.ran(at) {
			continue
		}
		done[at] = true
		if c.Group != group {
			group = c.Group
			fmt.Fprintf(tw, "%s%s\n", group, strings.Repeat("\t", len(m.strategies)+1))
		}
		fmt.Fprintf(tw, "  %s", c.Name)
		for _, s := range m.strategies {
			result := m.results[cell{at, s}]
			if result == "" {
				result = "n/a"
			}
			fmt.Fprintf(tw, "\t%s", result)
		}
		fmt.Fprintln(tw, "\t")
	}
	return tw.Flush()
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

func (m *matrix) ran(at string) bool {
	return slices.ContainsFunc(m.strategies, func(s string) bool { return m.results[cell{at, s}] != "" })
}

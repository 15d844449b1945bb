package simulation

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var writePage = flag.Bool("page", false, "write the tables of planted bugs into docs/simulation.md")

// found is the cell that shows whether the simulation finds the bug, and by what.
func (b bug) found() string {
	switch {
	case b.missed != "":
		return "no: " + b.missed
	case b.reports != nil:
		return "yes, by `" + strings.Join(b.reports, "` or `") + "`"
	}
	return "yes"
}

// tables returns what docs/simulation.md has about the planted bugs: a table of those that were made up, one of those that were
// repaired, and how many races are found, and how many are missed.
func tables() map[*regexp.Regexp]string {
	mark := map[bool]string{true: "yes"}
	var invented, returned strings.Builder
	invented.WriteString("| bug | race | found |\n|---|---|---|\n")
	returned.WriteString("| bug | repaired by | race | found |\n|---|---|---|---|\n")
	for _, b := range madeUp {
		fmt.Fprintf(&invented, "| %s | %s | %s |\n", b.name, mark[b.race], b.found())
	}
	commit := regexp.MustCompile("^[0-9a-f]{7}$")
	for _, b := range repaired {
		fmt.Fprintf(&returned, "| %s | %s | %s | %s |\n", b.name, commit.ReplaceAllString(b.repair, "`$0`"), mark[b.race], b.found())
	}
	of := func(bugs []bug, races bool) (found, all int) {
		for _, b := range bugs {
			if races && !b.race {
				continue
			}
			if all++; b.missed == "" {
				found++
			}
		}
		return found, all
	}
	f1, n1 := of(madeUp, false)
	f2, n2 := of(repaired, false)
	races, all := of(append(madeUp[:len(madeUp):len(madeUp)], repaired...), true)
	return map[*regexp.Regexp]string{
		regexp.MustCompile(`(?m)^\| bug \| race.*\n(\|.*\n)*`):                              invented.String(),
		regexp.MustCompile(`(?m)^\| bug \| repaired.*\n(\|.*\n)*`):                          returned.String(),
		regexp.MustCompile(`finds \d+ of \d+ invented bugs, and \d+ of \d+ bugs that past`): fmt.Sprintf("finds %d of %d invented bugs, and %d of %d bugs that past", f1, n1, f2, n2),
		regexp.MustCompile(`finds \d+ of the \d+ races`):                                    fmt.Sprintf("finds %d of the %d races", races, all),
	}
}

// TestPageListsPlantedBugs compares docs/simulation.md with the bugs.
func TestPageListsPlantedBugs(t *testing.T) {
	path := filepath.Join(root, "docs/simulation.md")
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	text := string(page)
	for there, want := range tables() {
		switch got := there.FindAllString(text, -1); {
		case len(got) != 1:
			t.Errorf("the page has %v %d times, want once", there, len(got))
		case got[0] == want:
		case *writePage:
			text = there.ReplaceAllLiteralString(text, want)
		default:
			t.Errorf("go test -run TestPageListsPlantedBugs ./internal/test/simulation -page writes it: the page has\n%s\nwant\n%s", got[0], want)
		}
	}
	if *writePage {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

package compare

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// saved has the runs of whole comparisons, by strategy and by metric, as --json printed them: ten of
// setnx, hashreentrant and blpop, every other one beside a busy loop of its own, and twenty of two copies
// of one strategy. Each has 30 runs, on two processors whose load was 5 to 47.
type saved map[string]map[string][]float64

func savedRuns(t *testing.T) (ten, copies []saved) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "runs.json"))
	require.NoError(t, err)
	var all struct{ Ten, Copies []saved }
	require.NoError(t, json.Unmarshal(text, &all))
	require.Len(t, all.Ten, 10)
	require.Len(t, all.Copies, 20)
	return all.Ten, all.Copies
}

// joined has a strategy's runs of several comparisons, made worse by a factor.
func joined(name, as string, worse float64, of ...saved) *Strategy {
	s := &Strategy{Name: as, Figures: make(map[string]*Figure)}
	for _, m := range metrics {
		var runs []float64
		for _, r := range of {
			for _, v := range r[name][m.id] {
				if m.more {
					v /= worse
				} else {
					v *= worse
				}
				runs = append(runs, v)
			}
		}
		if len(runs) > 0 {
			s.Figures[m.id] = newFigure(m, runs, 1000)
		}
	}
	return s
}

// ranked are the needs whose advice the saved runs settle.
var ranked = []Need{"speed", "throughput", "contention"}

// TestSavedAdvice: any two of ten comparisons, joined, have 60 runs, as many as a comparison has by default. Each has
// one advice for a need, the same in all of them, whatever the machine did besides.
func TestSavedAdvice(t *testing.T) {
	t.Parallel()
	ten, _ := savedRuns(t)
	want := map[Need][]string{"contention": {"blpop"}}
	for i := range ten {
		for j := range i {
			var all []*Strategy
			for _, name := range []string{"setnx", "hashreentrant", "blpop"} {
				all = append(all, joined(name, name, 1, ten[i], ten[j]))
			}
			for _, need := range ranked {
				best, because := rank(all, needs[need].weighs)
				require.Equal(t, want[need], best, "%s of %d and %d: %s", need, i+1, j+1, because)
			}
		}
	}
}

// TestSavedCopies: of two copies of a strategy none is advised.
func TestSavedCopies(t *testing.T) {
	t.Parallel()
	_, copies := savedRuns(t)
	for i, r := range copies {
		var all []*Strategy
		for name := range r {
			all = append(all, joined(name, name, 1, r))
		}
		require.Len(t, all, 2)
		for _, need := range ranked {
			best, because := rank(all, needs[need].weighs)
			require.Empty(t, best, "%s, %s of %d: %s", all[0].Name, need, i+1, because)
		}
	}
}

// TestSavedPlanted: a copy of a strategy that is half as good is found, in each need, in any two comparisons.
func TestSavedPlanted(t *testing.T) {
	t.Parallel()
	ten, _ := savedRuns(t)
	for i := range ten {
		for j := range i {
			for _, name := range []string{"setnx", "hashreentrant", "blpop"} {
				all := []*Strategy{joined(name, "planted", 2, ten[i], ten[j]), joined(name, name, 1, ten[i], ten[j])}
				for _, need := range ranked {
					best, because := rank(all, needs[need].weighs)
					require.Equal(t, []string{name}, best, "%s of %d and %d: %s", need, i+1, j+1, because)
				}
			}
		}
	}
}

var replayed = flag.String("replay", "", "a pattern of files that --json printed: their advice, by the rule of today")

// TestReplay prints the advice over comparisons that were made before: go test -run Replay -v -replay 'run-*.json'.
func TestReplay(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(*replayed)
	require.NoError(t, err)
	said := make(map[string]int)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		var r Result
		require.NoError(t, json.Unmarshal(text, &r))
		r.advise()
		for _, a := range r.Advice {
			if len(a.Weighs) > 0 {
				said[fmt.Sprintf("%s, of %s: best is %q", a.Need, strings.Join(a.Meet, " "), a.Best)]++
			}
		}
	}
	var lines []string
	for line, n := range said {
		lines = append(lines, fmt.Sprintf("%3d %s", n, line))
	}
	slices.SortFunc(lines, func(a, b string) int { return strings.Compare(a[4:], b[4:]) })
	t.Log("\n" + strings.Join(lines, "\n"))
}

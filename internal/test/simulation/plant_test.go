package simulation

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

var plant = flag.Uint64("plant", 0, "plant each bug in the engine, and look for it with so many histories")

const root = "../../.."

// planted returns the file with the bug.
func (b bug) planted(t *testing.T) string {
	t.Helper()
	source, err := os.ReadFile(filepath.Join(root, b.file))
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(source), b.old); n != 1 {
		t.Fatalf("%q: %s has %q %d times, want once: bring the bug up to date", b.name, b.file, b.old, n)
	}
	return strings.Replace(string(source), b.old, b.new, 1)
}

// TestPlantedBugsFit wants each bug to fit the engine as it is.
func TestPlantedBugsFit(t *testing.T) {
	for _, b := range append(madeUp, repaired...) {
		b.planted(t)
	}
}

// TestFindsPlantedBugs wants the simulation to find each planted bug, but for those that it is known to miss.
func TestFindsPlantedBugs(t *testing.T) {
	if *plant == 0 {
		t.Skip("-plant=1000 plants bugs, each of which is compiled and played")
	}
	for _, b := range append(madeUp, repaired...) {
		t.Run(b.name, func(t *testing.T) {
			found, how := b.play(t)
			switch {
			case found:
				t.Logf("found (%s): %s", b.repair, how)
			case b.missed == "":
				t.Errorf("not found (%s): %s", b.repair, how)
			default:
				t.Logf("missed (%s): %s", b.repair, b.missed)
			}
		})
	}
}

var firstSeed = regexp.MustCompile(`seed=(\d+) `)

// play plays histories with the bug. A history that fails, or does not end, has found it.
func (b bug) play(t *testing.T) (found bool, how string) {
	t.Helper()
	path, err := filepath.Abs(filepath.Join(root, b.file))
	if err != nil {
		t.Fatal(err)
	}
	changed := filepath.Join(t.TempDir(), "changed.go")
	overlay, _ := json.Marshal(map[string]any{"Replace": map[string]string{path: changed}}) //nolint:errchkjson // strings only
	overlaid := filepath.Join(t.TempDir(), "overlay.json")
	for name, text := range map[string]string{changed: b.planted(t), overlaid: string(overlay)} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	build := exec.Command("go", "build", "-overlay="+overlaid, "github.com/distlock/locker")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("with the bug the engine does not compile: %v\n%s", err, out)
	}
	began := time.Now()
	out, err := exec.Command("go", "test", "-overlay="+overlaid, "-vet=off", "-timeout=3m", "-run=^TestSimulation$", fmt.Sprint("-seeds=", *plant), ".").CombinedOutput()
	took := time.Since(began).Round(time.Second)
	if err == nil {
		return false, fmt.Sprintf("%d histories in %v", *plant, took)
	}
	if !b.reportedBy(string(out)) {
		t.Errorf("found, but not by one of %q: %.2000s", b.reports, out)
	}
	seed := firstSeed.FindSubmatch(out)
	if seed == nil {
		return true, fmt.Sprintf("after %v: %.300s", took, out)
	}
	return true, fmt.Sprintf("seed %s, after %v: %s", seed[1], took, firstViolation(string(out)))
}

// reportedBy reports whether out has a violation that is about the bug.
func (b bug) reportedBy(out string) bool {
	return b.reports == nil || slices.ContainsFunc(b.reports, func(part string) bool { return strings.Contains(out, part) })
}

var violationLine = regexp.MustCompile(`(?m)^ *(?:simulation_test.go:\d+: )?after \S+: (.*)$`)

func firstViolation(out string) string {
	if m := violationLine.FindStringSubmatch(out); m != nil {
		return fmt.Sprintf("%.200s", m[1])
	}
	return "a history did not end"
}

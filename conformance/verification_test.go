package conformance_test

import (
	"embed"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"text/template"

	"github.com/distlock/locker/conformance"
	"github.com/distlock/locker/conformance/redisconformance"
	"github.com/distlock/locker/internal/spec"
	"github.com/distlock/locker/internal/test/proof"
	"github.com/distlock/locker/internal/test/redistest"
	"github.com/distlock/locker/internal/test/soak"
	"github.com/stretchr/testify/require"
)

var writeVerification = flag.Bool("verification", false, "write docs/verification.md and docs/cases.md instead of comparing with them")

//go:embed testdata/*.md.tmpl
var verificationTemplates embed.FS

// TestVerification: docs/verification.md and docs/cases.md agree with the tables of the suite.
func TestVerification(t *testing.T) {
	if runtime.GOOS != "linux" || !redistest.AtLeast(7, 0) {
		t.Skip("some cases are for Linux and Redis 7 alone, and the page has all")
	}
	for page, want := range verification(t) {
		path := filepath.Join("../docs", page)
		if *writeVerification {
			require.NoError(t, os.WriteFile(path, []byte(want), 0o644))
			continue
		}
		have, err := os.ReadFile(path)
		require.NoError(t, err)
		if string(have) != want {
			t.Errorf("docs/%s is stale: make verification", page)
		}
	}
}

// promise is a rule with everything that is known to check it.
type promise struct {
	Rule, Title string
	Cases       []checked
	Bugs        []planted
	Soaked      []soak.Kind
	Besides     []string // tests, by package and name
	Unproven    string
}

// checked is a case. Faulty: something goes wrong in it.
type checked struct {
	conformance.Case
	Faulty bool
}

// planted is a strategy that is broken on purpose, and the cases of a rule that notice it.
type planted struct {
	Name   string
	Caught []string
}

// Anchor is where the rule is in docs/rules.md.
func (p promise) Anchor() string { return strings.ToLower(p.Rule) }

// Faulty counts the cases in which something goes wrong.
func (p promise) Faulty() (n int) {
	for _, c := range p.Cases {
		if c.Faulty {
			n++
		}
	}
	return n
}

// Soak says what the soak looks for.
func (p promise) Soak() string {
	var kinds []string
	for _, k := range p.Soaked {
		kinds = append(kinds, string(k))
	}
	return strings.Join(kinds, ", ")
}

// Modelled names the tests of models and of the simulation.
func (p promise) Modelled() (tests []string) {
	for _, name := range p.Besides {
		if dir, test, _ := strings.Cut(name, ": "); dir == "internal/spec" || dir == "internal/test/simulation" {
			tests = append(tests, test)
		}
	}
	return tests
}

// NeedsText names the claims without which the case does not run.
func (c checked) NeedsText() string {
	var claims []string
	for claim := range c.Claims() {
		claims = append(claims, claim)
	}
	return strings.Join(claims, ", ")
}

// causesFault reports whether something goes wrong in the case. The page marks such a case, and make faults runs those that are marked.
func causesFault(c conformance.Case) bool {
	return c.Fault || (c.Needs.Faults || c.Needs.Servers || c.Needs.Wired) && !c.Counts
}

// unplanted is a group's cases that no broken strategy is named for.
type unplanted struct {
	Group string
	Cases []string
}

// verification makes the pages.
func verification(t *testing.T) map[string]string {
	t.Helper()
	promises := promises(t)
	bugs, soakBugs := plantedBugs(), plantedInSoak(t)
	runs, err := soak.Runs("../internal/test/soak/runs.json")
	require.NoError(t, err)
	proved, err := proof.Runs("testdata/proof.json")
	require.NoError(t, err)
	cases := everyCase()
	faulty := 0
	for _, c := range cases {
		if causesFault(c) {
			faulty++
		}
	}
	rest := withoutBug(cases, bugs)
	unnamed := 0
	for _, g := range rest {
		unnamed += len(g.Cases)
	}
	model := spec.ClaimModel(2, spec.Mistakes{})
	model.States = 1_000_000
	explored := model.Explore()
	require.True(t, explored.Complete)
	simulated, missed := plantedInSimulation(t)
	tmpl, err := template.New("pages").Funcs(template.FuncMap{"join": strings.Join, "thousands": thousands}).ParseFS(verificationTemplates, "testdata/*.md.tmpl")
	require.NoError(t, err)
	tables := map[string]any{
		"Promises": promises, "Cases": len(cases), "Faulty": faulty, "Bugs": len(bugs), "Unnamed": unnamed,
		"Unplanted": rest, "SoakBugs": soakBugs, "Runs": runs, "Proof": proved,
		"States": explored.States, "SimulationBugs": simulated, "SimulationFinds": simulated - missed,
	}
	pages := map[string]string{}
	for _, page := range []string{"verification.md", "cases.md"} {
		var b strings.Builder
		require.NoError(t, tmpl.ExecuteTemplate(&b, page+".tmpl", tables))
		pages[page] = b.String()
	}
	return pages
}

// promises are the rules of docs/rules.md in their order.
func promises(t *testing.T) (all []promise) {
	t.Helper()
	rules, err := os.ReadFile("../docs/rules.md")
	require.NoError(t, err)
	bugs := plantedBugs()
	for _, m := range regexp.MustCompile(`(?m)^<a id="r\d+"></a>\*\*(R\d+)\. (.*?)\.\*\*`).FindAllStringSubmatch(string(rules), -1) {
		p := promise{Rule: m[1], Title: m[2], Besides: besides[m[1]], Unproven: unproven[m[1]], Soaked: soakedFor[m[1]]}
		if p.Unproven == "" {
			t.Errorf("unproven does not say what is not proven of %s", p.Rule)
		}
		for _, name := range p.Besides {
			exists(t, name)
		}
		of := map[string]bool{}
		for _, c := range everyCase() {
			if slices.Contains(c.Rules, p.Rule) {
				p.Cases = append(p.Cases, checked{c, causesFault(c)})
				of[c.Name] = true
			}
		}
		for _, name := range slices.Sorted(maps.Keys(bugs)) {
			caught := slices.DeleteFunc(slices.Clone(bugs[name].caught), func(cn string) bool { return !of[cn] })
			if len(caught) > 0 {
				p.Bugs = append(p.Bugs, planted{name, caught})
			}
		}
		all = append(all, p)
	}
	require.Len(t, all, 28)
	return all
}

// withoutBug are the cases that none of the broken strategies is named for, by their groups.
func withoutBug(cases []conformance.Case, bugs map[string]brokenStrategy) (rest []unplanted) {
	named := map[string]bool{}
	for _, b := range bugs {
		for _, name := range b.caught {
			named[name] = true
		}
	}
	for _, c := range cases {
		if named[c.Name] {
			continue
		}
		i := slices.IndexFunc(rest, func(g unplanted) bool { return g.Group == c.Group })
		if i < 0 {
			i, rest = len(rest), append(rest, unplanted{Group: c.Group})
		}
		rest[i].Cases = append(rest[i].Cases, c.Name)
	}
	return rest
}

// everyCase is the suite with what Redis has besides, each case once.
func everyCase() (all []conformance.Case) {
	all = conformance.Cases()
	for _, topology := range []redisconformance.Topology{redisconformance.Single, redisconformance.Sentinel, redisconformance.Cluster} {
		all = append(all, redisconformance.Strategy{Topology: topology}.Cases()...)
	}
	all = append(all, redisconformance.Quorum{}.Cases()...)
	seen := map[string]bool{}
	return slices.DeleteFunc(all, func(c conformance.Case) bool {
		defer func() { seen[c.Path()] = true }()
		return seen[c.Path()]
	})
}

func plantedBugs() map[string]brokenStrategy {
	all := maps.Clone(broken)
	maps.Copy(all, strained)
	return all
}

// plantedInSoak are the strategies on which the soak is tested, by what it finds in them.
func plantedInSoak(t *testing.T) map[soak.Kind][]string {
	t.Helper()
	found := map[soak.Kind][]string{}
	for _, name := range slices.Sorted(maps.Keys(hunts)) {
		found[hunts[name].want] = append(found[hunts[name].want], name)
	}
	// The planted bugs of package soak are in its own test.
	source, err := os.ReadFile("../internal/test/soak/planted_test.go")
	require.NoError(t, err)
	kinds := map[string]soak.Kind{"Overlap": soak.Overlap, "TokenOrder": soak.TokenOrder, "Stall": soak.Stall, "LateLoss": soak.LateLoss, "Leak": soak.Leak}
	bugs := regexp.MustCompile(`(?m)^\t\tname: "([^"]+)",.* want: soak\.(\w+)`).FindAllStringSubmatch(string(source), -1)
	require.Len(t, bugs, strings.Count(string(source), "\t\tname: "))
	for _, m := range bugs {
		require.Contains(t, kinds, m[2])
		found[kinds[m[2]]] = append(found[kinds[m[2]]], m[1])
	}
	return found
}

// plantedInSimulation counts the bugs that make plant plants in the engine, and those of them that the simulation does not find.
func plantedInSimulation(t *testing.T) (bugs, missed int) {
	t.Helper()
	source, err := os.ReadFile("../internal/test/simulation/planted_test.go")
	require.NoError(t, err)
	bugs, missed = strings.Count(string(source), "\n\t{name: "), strings.Count(string(source), "missed: \"")
	require.Greater(t, bugs, missed)
	return bugs, missed
}

// exists checks that a test named "directory: TestName" is there.
func exists(t *testing.T, name string) {
	t.Helper()
	dir, test, _ := strings.Cut(name, ": ")
	files, err := filepath.Glob(filepath.Join("..", dir, "*_test.go"))
	require.NoError(t, err)
	for _, file := range files {
		source, err := os.ReadFile(file)
		require.NoError(t, err)
		if strings.Contains(string(source), fmt.Sprintf("\nfunc %s(", test)) {
			return
		}
	}
	t.Errorf("there is no test %s in %s", test, dir)
}

// TestFaultCases: make faults runs the cases that are marked on the page, and those on docs/faults.md are among them.
func TestFaultCases(t *testing.T) {
	faulty := map[string]bool{}
	for _, c := range everyCase() {
		if causesFault(c) {
			faulty[c.Path()] = true
		}
		if (c.Needs.Faults || c.Needs.Servers) && !c.Isolated && !c.Serial {
			t.Errorf("%s causes faults on a harness that other cases use", c.Path())
		}
		if c.Counts && !c.Needs.Faults || c.Counts && c.Fault {
			t.Errorf("%s: Counts is for a case that needs Faults and causes none", c.Path())
		}
	}
	page, err := os.ReadFile("../docs/faults.md")
	require.NoError(t, err)
	lines := regexp.MustCompile("`([a-z-]+/[A-Z][A-Za-z]+)`").FindAllStringSubmatch(string(page), -1)
	require.NotEmpty(t, lines)
	for _, m := range lines {
		if !faulty[m[1]] {
			t.Errorf("docs/faults.md has %s, which is not marked as a case that causes a fault", m[1])
		}
	}
	target, err := exec.CommandContext(t.Context(), "make", "-n", "-C", "..", "faults").CombinedOutput()
	if errors.Is(err, exec.ErrNotFound) {
		t.Skip("there is no make")
	}
	require.NoError(t, err, "%s", target)
	for path := range faulty {
		_, name, _ := strings.Cut(path, "/")
		if !regexp.MustCompile(`[(|]` + name + `[)|]`).Match(target) {
			t.Errorf("make faults does not run %s", path)
		}
	}
}

// TestPlantedBugsAreNamed: each broken strategy has a case that has to fail on it.
func TestPlantedBugsAreNamed(t *testing.T) {
	for name, b := range plantedBugs() {
		if len(b.caught) == 0 {
			t.Errorf("no case is named for a strategy that %s", name)
		}
	}
}

// thousands writes n as 1,234,567.
func thousands(n int) string {
	if n < 1000 {
		return strconv.Itoa(n)
	}
	return fmt.Sprintf("%s,%03d", thousands(n/1000), n%1000)
}

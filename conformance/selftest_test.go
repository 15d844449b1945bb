package conformance_test

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/conformance"
	"github.com/distlock/locker/conformance/internal/suite"
)

var exhaustive = flag.Bool("exhaustive", false, "run every case on every broken strategy, and say which catch it")

// selfTiming gives broken strategies less time to prove themselves.
var selfTiming = conformance.Timing{
	TTL: 2 * time.Second, ShortTTL: 400 * time.Millisecond, PollWithin: 2 * time.Second, Prompt: 500 * time.Millisecond,
	Slack: 800 * time.Millisecond, Settle: 2 * time.Second, SignalLife: time.Second, Patience: 4 * time.Second, Guard: time.Minute,
}

// record runs c on a harness of its own.
func record(t *testing.T, c conformance.Case, f fake) *suite.Recorder {
	t.Helper()
	r := suite.NewRecorder(t.Context(), c.Name)
	defer r.CleanUp()
	r.Do(func() { c.Run(r, f.harness(r)) })
	return r
}

// allCases are the suite's and those a fakeStore has of its own.
func allCases() []conformance.Case {
	return append(conformance.Cases(), conformance.TroubleCases(fakeTroubles...)...)
}

func caseNamed(t *testing.T, name string) conformance.Case {
	t.Helper()
	for _, c := range allCases() {
		if c.Name == name {
			return c
		}
	}
	t.Fatalf("there is no case %s", name)
	return conformance.Case{}
}

// TestBroken runs strategies that are broken on purpose: each has to fail the
// cases named for it, beside a sound one that passes them under the same timing. What fails
// there fails for being broken.
func TestBroken(t *testing.T) {
	if testing.Short() {
		t.Log("left out under -short")
		return
	}
	run := func(what string, c conformance.Case, f fake, check func(t *testing.T, r *suite.Recorder)) {
		f.timing = selfTiming
		t.Run(strings.ReplaceAll(what, " ", "-")+"/"+c.Name, func(t *testing.T) {
			if !c.Serial {
				t.Parallel()
			}
			r := record(t, c, f)
			check(t, r)
			if strings.Contains(r.Said(), "all goroutines:") {
				t.Errorf("the case hangs:\n%s", r.Said())
			}
		})
	}
	passed, all := map[string]bool{}, maps.Clone(broken)
	maps.Copy(all, strained)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		b := all[name]
		for _, cn := range b.caught {
			c := caseNamed(t, cn)
			if c.Slow && os.Getenv("LOCKER_CONFORMANCE") != "all" {
				continue
			}
			if !passed[cn] {
				passed[cn] = true
				run("sound", c, soundFor(t, c), func(t *testing.T, r *suite.Recorder) {
					if r.Failed() {
						t.Errorf("%s fails on a sound strategy:\n%s", cn, r.Said())
					}
				})
			}
			run(name, c, b.fake, func(t *testing.T, r *suite.Recorder) {
				if !r.Failed() {
					t.Errorf("%s passes a strategy that %s", cn, name)
				}
				if log := r.Said(); !strings.Contains(log, c.Contract) || !strings.Contains(log, "docs/rules.md#"+strings.ToLower(c.Rules[0])) {
					t.Errorf("the contract or its rules are not shown:\n%s", log)
				}
			})
		}
	}
}

// WithLockerCases says that what a driver does to those cases other ones notice, too: so do
// they with each fault that is in a driver here.
func TestDriverFaultsAreNoticedByDefault(t *testing.T) {
	t.Parallel()
	all := maps.Clone(broken)
	maps.Copy(all, strained)
	for name, b := range all {
		inLocker := b.wrap != nil || len(b.opts) > 0
		if inLocker || len(b.caught) == 0 {
			continue
		}
		if !slices.ContainsFunc(b.caught, func(cn string) bool { return !caseNamed(t, cn).Locker }) {
			t.Errorf("a driver that %s is caught by none but cases of package locker: %v", name, b.caught)
		}
	}
}

// soundFor is a sound strategy that claims what c needs.
func soundFor(t *testing.T, c conformance.Case) fake {
	t.Helper()
	for _, f := range []fake{fakeCounting, fakeNotified, fakePolling, fakeUnfenced, fakePermitting, fakeQuorum} {
		if c.RunsOn(f.harness(t)) {
			return f
		}
	}
	t.Fatalf("there is none for %s", c.Name)
	return fake{}
}

// TestExhaustive is for working on the suite: with -exhaustive it says which
// cases catch which broken strategy, and which cases catch none.
func TestExhaustive(t *testing.T) {
	if !*exhaustive {
		return
	}
	var mu sync.Mutex
	catches := map[string]int{}
	t.Run("all", func(t *testing.T) {
		for _, name := range slices.Sorted(maps.Keys(broken)) {
			b := broken[name]
			b.timing = selfTiming
			t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
				t.Parallel()
				var by []string
				h := b.harness(t)
				for _, c := range allCases() {
					// A case that counts goroutines cannot share the process.
					if c.Slow || c.Serial || !c.RunsOn(h) {
						continue
					}
					if record(t, c, b.fake).Failed() {
						by = append(by, c.Name)
					}
				}
				t.Logf("%d cases catch %q: %s", len(by), name, strings.Join(by, ", "))
				mu.Lock()
				defer mu.Unlock()
				for _, c := range by {
					catches[c]++
				}
			})
		}
	})
	for _, c := range allCases() {
		if catches[c.Name] == 0 {
			t.Logf("%s catches nothing", c.Name)
		}
	}
}

// TestMissingUpgrade: what a harness claims and cannot show fails.
func TestMissingUpgrade(t *testing.T) {
	for _, c := range allCases() {
		r := suite.NewRecorder(t.Context(), c.Name)
		c.Run(r, bareHarness{})
		if c.NeedsUpgrade() && (!r.Failed() || !strings.Contains(r.Said(), "is no conformance.")) {
			t.Errorf("%s on a harness without upgrades: failed %t\n%s", c.Name, r.Failed(), r.Said())
		}
	}
}

// bareHarness has no upgrade and makes no Locker.
type bareHarness struct{}

func (bareHarness) NewLocker(tb testing.TB, _ ...locker.Option) locker.Locker {
	tb.Helper()
	tb.Fatal("no Locker")
	return nil
}
func (bareHarness) Capabilities() conformance.Capabilities { return conformance.Capabilities{} }
func (bareHarness) Timing() conformance.Timing             { return conformance.Timing{} }

// TestHangingCase: a case that does not end is reported with a stack dump.
func TestHangingCase(t *testing.T) {
	f := fakePolling
	f.timing.Guard = 100 * time.Millisecond
	end := make(chan struct{})
	defer close(end)
	r := record(t, conformance.Case{
		Name: "Hangs", Group: "test", Contract: "nothing",
		Test: func(*conformance.T) { <-end },
	}, f)
	if !r.Failed() || !strings.Contains(r.Said(), "TestHangingCase") {
		t.Errorf("failed: %t\n%s", r.Failed(), r.Said())
	}
}

// TestPanickingCase: a panic fails the case alone.
func TestPanickingCase(t *testing.T) {
	r := record(t, conformance.Case{
		Name: "Panics", Group: "test", Contract: "nothing",
		Test: func(t *conformance.T) { <-t.Go(func() { panic("trouble") }) },
	}, fakePolling)
	if !r.Failed() || !strings.Contains(r.Said(), "trouble") {
		t.Errorf("failed: %t\n%s", r.Failed(), r.Said())
	}
}

// TestCases: the list is in order.
func TestCases(t *testing.T) {
	names := map[string]bool{}
	for _, c := range allCases() {
		if names[c.Name] {
			t.Errorf("two cases are named %s", c.Name)
		}
		names[c.Name] = true
		if c.Name == "" || c.Group == "" || c.Contract == "" || len(c.Rules) == 0 || c.Test == nil {
			t.Errorf("something is missing: %+v", c)
		}
	}
	rules, err := os.ReadFile("../docs/rules.md")
	if err != nil {
		t.Fatal(err)
	}
	for i := 1; i <= 28; i++ {
		rule := fmt.Sprintf("R%d", i)
		if anchor := fmt.Sprintf(`<a id="r%d"></a>**R%d. `, i, i); strings.Count(string(rules), anchor) != 1 {
			t.Errorf("docs/rules.md does not say %s once, as %s", rule, anchor)
		}
		if !slices.ContainsFunc(conformance.Cases(), func(c conformance.Case) bool { return slices.Contains(c.Rules, rule) }) {
			t.Errorf("no case checks %s", rule)
		}
	}
}

package conformance

import (
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"time"
)

// Cases returns every case of the suite.
func Cases() []Case {
	return slices.Concat(
		exclusionCases, ownershipCases, doCases, reentryCases, ownerCases, severalCases, capacityCases, leaseCases, limitCases,
		waitingCases, wakeCases, handOverCases, loadCases, fencingCases, failureCases, outageCases, faultCases, userCodeCases, keyCases,
		hygieneCases, closingCases, observerCases, adminCases, signalCases, detectionCases, stickyCases, processCases,
		commandCases, raceCases, watchCases, wireCases, stepCases,
	)
}

// Option configures [Run].
type Option func(*runner)

// WithSkip leaves a case out, named Name or group/Name, with a reason for the report.
func WithSkip(name, reason string) Option {
	return func(r *runner) { r.skip[name] = reason }
}

// WithOnly runs the cases whose "group/Name" matches the regular expression and
// no others. It is an error if there are none.
func WithOnly(pattern string) Option {
	return func(r *runner) { r.patterns = append(r.patterns, pattern) }
}

// WithCases adds cases, such as those only strategies for one store can have.
func WithCases(cases ...Case) Option {
	return func(r *runner) { r.cases = append(r.cases, cases...) }
}

// WithLockerCases also runs the cases about what package locker decides by itself, such as limits, Do
// and events. They pass on strategy/memory. The other cases alone notice each faulty driver that the
// suite is tested with.
func WithLockerCases() Option {
	return func(r *runner) { r.locker = true }
}

// WithoutSlow leaves out the cases that take more than ten seconds, as -short does.
func WithoutSlow() Option {
	return func(r *runner) { r.short = true }
}

// WithParallel sets how many cases [Check] runs at the same time. Default 16; [Run] has
// go test's -parallel.
func WithParallel(n int) Option {
	return func(r *runner) { r.parallel = max(n, 1) }
}

// seedEnv fixes what the cases draw at random: a report shows the seed of its run.
const seedEnv = "LOCKER_CONFORMANCE_SEED"

type runner struct {
	cases []Case
	skip  map[string]string
	only  []*regexp.Regexp

	patterns []string // of only
	seed     uint64
	short    bool
	locker   bool
	parallel int
}

func newRunner(opts []Option) (*runner, error) {
	r := &runner{cases: Cases(), skip: map[string]string{}, parallel: mostParallel}
	for _, o := range opts {
		o(r)
	}
	if r.seed = rand.Uint64(); os.Getenv(seedEnv) != "" {
		seed, err := strconv.ParseUint(os.Getenv(seedEnv), 10, 64)
		if err != nil {
			return nil, fmt.Errorf("want a number in %s: %w", seedEnv, err)
		}
		r.seed = seed
	}
	for _, p := range r.patterns {
		re, err := regexp.Compile(p)
		if err != nil {
			return nil, fmt.Errorf("WithOnly(%q): %w", p, err)
		}
		if !slices.ContainsFunc(r.cases, func(c Case) bool { return re.MatchString(c.path()) }) {
			return nil, fmt.Errorf("WithOnly names no case: %q", p)
		}
		r.only = append(r.only, re)
	}
	for name := range r.skip {
		if !slices.ContainsFunc(r.cases, func(c Case) bool { return c.Name == name || c.path() == name }) {
			return nil, fmt.Errorf("WithSkip names no case: %q", name)
		}
	}
	return r, nil
}

// Run runs the suite: first the cases that can run beside others, as parallel
// subtests, then the rest one by one. Most cases wait most of the time, so
// a -parallel above the number of processors makes Run faster. A case whose needs the
// harness does not meet is no subtest. The table at the end names every case.
func Run(t *testing.T, newHarness HarnessMaker, opts ...Option) {
	t.Helper()
	r, err := newRunner(opts)
	if err != nil {
		t.Fatal(err)
	}
	r.short = r.short || testing.Short()
	shared := newHarness(t)
	results, beside, alone := r.plan(shared)
	run := func(t *testing.T, c Case) {
		t.Helper()
		start, why := time.Now(), ""
		defer func() { results.ran(c, t.Failed(), time.Since(start), why) }()
		why = c.run(t, c.on(t, shared, newHarness), r.seed)
	}
	// A group of its own, because parallel subtests end with their parent.
	t.Run("parallel", func(t *testing.T) {
		for _, c := range beside {
			t.Run(c.path(), func(t *testing.T) {
				t.Parallel()
				run(t, c)
			})
		}
	})
	t.Run("serial", func(t *testing.T) {
		for _, c := range alone {
			t.Run(c.path(), func(t *testing.T) { run(t, c) })
		}
	})
	t.Logf("\n%s", results.result())
}

// plan sorts out which cases run, beside others or alone, and notes why the others do not.
func (r *runner) plan(h Harness) (results *collector, beside, alone []Case) {
	results = newCollector(h.Capabilities().Name, r.seed, r.cases)
	var isolated []Case // after those that share a harness
	for _, c := range r.cases {
		switch reason := r.leftOut(c, h); {
		case reason != "":
			results.set(c, Skipped, 0, reason)
		case c.Serial:
			alone = append(alone, c)
		case c.Isolated:
			isolated = append(isolated, c)
		default:
			beside = append(beside, c)
		}
	}
	return results, append(beside, isolated...), alone
}

// leftOut says why c does not run, or "".
func (r *runner) leftOut(c Case, h Harness) string {
	for _, name := range []string{c.Name, c.path()} {
		if reason, ok := r.skip[name]; ok {
			return reason
		}
	}
	if len(r.only) > 0 && !slices.ContainsFunc(r.only, func(re *regexp.Regexp) bool { return re.MatchString(c.path()) }) {
		return notSelected
	}
	if c.Locker && !r.locker {
		return "decided by package locker, see WithLockerCases"
	}
	if reason := c.unmet(h); reason != "" {
		return reason
	}
	if c.Slow && r.short {
		return "slow, and short runs are asked for"
	}
	return ""
}

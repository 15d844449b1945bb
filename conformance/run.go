package conformance

import (
	"fmt"
	"io"
	"math/rand/v2"
	"regexp"
	"slices"
	"testing"
)

// Cases returns every case of the suite.
func Cases() []Case {
	return slices.Concat(
		exclusionCases, ownershipCases, doCases, reentryCases, ownerCases, leaseCases, limitCases,
		waitingCases, wakeCases, handOverCases, loadCases, fencingCases, failureCases, outageCases, faultCases, keyCases,
		hygieneCases, closingCases, observerCases, processCases,
	)
}

// Option configures [Run].
type Option func(*runner)

// WithSkip leaves a case out, with a reason for the report.
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

// WithReport writes the table of results to w as well as to the test's log.
func WithReport(w io.Writer) Option {
	return func(r *runner) { r.out = w }
}

// WithSeed fixes what the cases draw at random. Default: another one every time,
// shown in the report.
func WithSeed(seed uint64) Option {
	return func(r *runner) { r.seed = seed }
}

type runner struct {
	cases []Case
	skip  map[string]string
	only  []*regexp.Regexp

	patterns []string // of only
	out      io.Writer
	seed     uint64
}

// Run runs the suite: first the cases that bear others beside them, as parallel
// subtests, then the rest one by one. Most of them wait most of the time, so
// that a -parallel above the number of processors makes it faster. A case whose needs the harness does not claim is no subtest;
// it is named, like every other, in the table printed at the end.
func Run(t *testing.T, newHarness HarnessMaker, opts ...Option) {
	t.Helper()
	r := &runner{cases: Cases(), skip: map[string]string{}, seed: rand.Uint64()}
	for _, o := range opts {
		o(r)
	}
	for _, p := range r.patterns {
		re, err := regexp.Compile(p)
		if err != nil {
			t.Fatalf("WithOnly(%q): %v", p, err)
		}
		if !slices.ContainsFunc(r.cases, func(c Case) bool { return re.MatchString(c.path()) }) {
			t.Errorf("WithOnly names no case: %q", p)
		}
		r.only = append(r.only, re)
	}
	for name := range r.skip {
		if !slices.ContainsFunc(r.cases, func(c Case) bool { return c.Name == name }) {
			t.Errorf("WithSkip names no case: %q", name)
		}
	}
	shared := newHarness(t)
	rep := newReport(shared.Capabilities().Name, r.seed, r.cases)
	byMode := r.plan(shared, rep)
	// A group of its own, because parallel subtests end with their parent.
	t.Run("parallel", func(t *testing.T) {
		for _, c := range slices.Concat(byMode[Parallel], byMode[Isolated]) {
			t.Run(c.path(), func(t *testing.T) {
				t.Parallel()
				defer func() { rep.ran(c, t.Failed()) }()
				h := shared
				if c.Mode == Isolated {
					h = newHarness(t)
				}
				c.run(t, h, r.seed)
			})
		}
	})
	t.Run("serial", func(t *testing.T) {
		for _, c := range byMode[Serial] {
			t.Run(c.path(), func(t *testing.T) {
				defer func() { rep.ran(c, t.Failed()) }()
				c.run(t, newHarness(t), r.seed)
			})
		}
	})
	t.Logf("\n%s", rep)
	if r.out != nil {
		_, _ = fmt.Fprint(r.out, rep)
	}
}

// plan sorts out which cases run, and tells rep why the others do not.
func (r *runner) plan(h Harness, rep *report) map[Mode][]Case {
	byMode := map[Mode][]Case{}
	for _, c := range r.cases {
		if reason := r.leftOut(c, h); reason != "" {
			rep.skipped(c, reason)
			continue
		}
		byMode[c.Mode] = append(byMode[c.Mode], c)
	}
	return byMode
}

// leftOut says why c does not run, or "".
func (r *runner) leftOut(c Case, h Harness) string {
	if reason, ok := r.skip[c.Name]; ok {
		return reason
	}
	if len(r.only) > 0 && !slices.ContainsFunc(r.only, func(re *regexp.Regexp) bool { return re.MatchString(c.path()) }) {
		return notSelected
	}
	for _, n := range c.Needs {
		if h.Capabilities().Claims(n) {
			continue
		}
		if up := lacks(h, n); up != "" {
			return fmt.Sprintf("the harness is no %s", up)
		}
		return fmt.Sprintf("needs %s, which is not claimed", n)
	}
	if c.Slow && testing.Short() {
		return "slow, and -short is given"
	}
	return ""
}

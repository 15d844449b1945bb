package conformance

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/distlock/locker/conformance/internal/suite"
	"github.com/distlock/locker/internal/test/pace"
)

// Case checks one promise.
type Case struct {
	Name     string       // unique
	Group    string       // what it is about: exclusion, lease, waiting, ...
	Rules    []string     // what it checks, by the numbers in docs/rules.md: "R1" to "R28"
	Contract string       // the promise in one sentence, shown when it is broken
	Needs    Capabilities // without these claims it does not run
	Without  Capabilities // with one of these claims it does not run
	Isolated bool         // it breaks its store, or looks at all that is in it: it has a harness of its own, which is healed at its end
	Serial   bool         // it measures, or counts what is left: it has a harness of its own, as with Isolated, and runs alone
	Fault    bool         // it causes a fault, and needs neither Faults nor Servers nor Wired for that: it kills a process, say
	Counts   bool         // it needs Faults only to count commands, and causes no fault
	Locker   bool         // about what package locker decides, whatever the driver; see [WithLockerCases]
	Slow     bool         // takes more than ten seconds; left out under -short
	Test     func(t *T)
}

// path returns the case's name in the test's and the report's.
func (c Case) path() string { return c.Group + "/" + c.Name }

// links returns the URLs of the rules of the case, in plain words.
func (c Case) links() []string {
	var links []string
	for _, r := range c.Rules {
		links = append(links, "https://github.com/distlock/locker/blob/main/docs/rules.md#"+strings.ToLower(r))
	}
	return links
}

// on returns the harness for the case: shared, or one of its own.
func (c Case) on(tb testing.TB, shared Harness, newHarness HarnessMaker) Harness {
	tb.Helper()
	if c.Isolated || c.Serial {
		return newHarness(tb)
	}
	return shared
}

// Run checks the case on h and reports to tb; see [Run] for the whole suite.
func (c Case) Run(tb testing.TB, h Harness) {
	tb.Helper()
	c.run(tb, h, rand.Uint64())
}

// run is Run, and returns why it failed, if it did.
func (c Case) run(tb testing.TB, h Harness, seed uint64) (why string) {
	tb.Helper()
	for field := range claims(c.Needs) {
		if up := lacks(h, field); up != "" {
			why = fmt.Sprintf("%s is claimed, but the harness %T is no conformance.%s: implement it, drop the claim, or name the case in WithSkip", field, h, up)
			tb.Error(why)
			return why
		}
	}
	t := &T{h: h, timing: h.Timing().withDefaults().forMachine(pace.Factor())}
	// The id is not of the seed alone: a store may outlive the run.
	id := fmt.Sprintf("conformance:%s:%x", c.Name, rand.Uint64())
	if marked, ok := upgrade[interface{ KeyMark() string }](h); ok {
		id = marked.KeyMark() + id
	}
	heal := func() {}
	if c.Isolated || c.Serial { // other cases use a shared harness at the same time
		heal = t.healed
	}
	why = suite.Run(tb, suite.Setup{
		Name: c.path(), ID: id, Seed: seed, NewLocker: h.NewLocker, Heal: heal, Breaches: t.breaches,
		Patience: t.timing.Patience, Prompt: t.timing.Prompt, Slack: t.timing.Slack, Guard: t.timing.Guard,
	}, func(st *suite.T) {
		t.T = st
		c.Test(t)
	})
	if tb.Failed() {
		tb.Logf("%s promises: %s\nsee %s", c.path(), c.Contract, strings.Join(c.links(), ", "))
	}
	return why
}

// T is a case's [testing.TB], with its harness and with helpers that fail the case with a
// sentence. Its FailNow, Fatal and so the functions of testify's require may be called from any
// goroutine, and end that one.
//
//   - Locker makes a Locker, Key a key of the case's own, Go a goroutine that the case waits for.
//   - Lock, TryLock and Unlock have to succeed. Taken and Free check whether a key is held.
//   - Wait starts a Lock, and returns once the Lock waits. Granted waits for its grant, Refused for its error.
//   - Ends and Eventually wait for an event. Open checks that an event has not happened.
//   - Is, Isnt and NoError check errors.
//   - Context ends with the case.
type T struct {
	*suite.T
	h      Harness
	timing Timing
}

// Timing returns the harness's: zero fields are filled in, and leases are longer if the
// machine is slow.
func (t *T) Timing() Timing { return t.timing }

// Harness returns what the case runs on.
func (t *T) Harness() Harness { return t.h }

// The interfaces that the case needs.

func (t *T) caps() Capabilities    { return t.h.Capabilities() }
func (t *T) inspector() Inspector  { return must[Inspector](t.h) }
func (t *T) breaker() Breaker      { return must[Breaker](t.h) }
func (t *T) faults() Faults        { return must[Faults](t.h) }
func (t *T) servers() ServerFaults { return must[ServerFaults](t.h) }
func (t *T) planter() Planter      { return must[Planter](t.h) }
func (t *T) child() *suite.Child   { return suite.StartChild(t, must[ChildMaker](t.h).ChildSpec()) }

// healed makes the store reachable again.
func (t *T) healed() {
	if f, ok := upgrade[Faults](t.h); ok && t.caps().Faults {
		_ = f.Heal()
	}
	if s, ok := upgrade[ServerFaults](t.h); ok && t.caps().Servers {
		_ = s.Recover()
	}
}

// breaches returns what drivers did that they must not.
func (t *T) breaches() []string {
	if b, ok := t.h.(interface{ breaches() []string }); ok {
		return b.breaches()
	}
	return nil
}

// group returns the cases with the name of their group.
func group(name string, cases []Case) []Case {
	for i := range cases {
		cases[i].Group = name
	}
	return cases
}

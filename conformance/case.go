package conformance

import (
	"context"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/distlock/locker"
)

// Case checks one promise.
type Case struct {
	Name     string   // unique
	Group    string   // what it is about: exclusion, lease, waiting, ...
	Rules    []string // what it checks, by the numbers in docs/rules.md: "R1" to "R24"
	Contract string   // the promise in one sentence, shown when it is broken
	Needs    []Need   // without them it does not run
	Mode     Mode
	Locker   bool // about what package locker decides, whatever the driver; see [WithLockerCases]
	Slow     bool // takes more than ten seconds; left out under -short
	Test     func(t *T)
}

// Mode says what a case can bear beside it.
type Mode int

// The modes.
const (
	// Parallel cases share a harness and run beside one another.
	Parallel Mode = iota
	// Isolated cases have a harness of their own, because they break the store
	// or look at everything in it, and run beside the parallel ones.
	Isolated
	// Serial cases have a harness of their own and run alone: they measure, or
	// count what is left in the process.
	Serial
)

// path is the case's name in the test's and the report's.
func (c Case) path() string { return c.Group + "/" + c.Name }

// links are where the rules of the case are put in plain words.
func (c Case) links() []string {
	var links []string
	for _, r := range c.Rules {
		links = append(links, "https://github.com/distlock/locker/blob/main/docs/rules.md#"+strings.ToLower(r))
	}
	return links
}

// Run checks the case on h and reports to tb; see [Run] for the whole suite.
func (c Case) Run(tb testing.TB, h Harness) {
	tb.Helper()
	c.run(tb, h, rand.Uint64())
}

// run says why it failed, if it did.
func (c Case) run(tb testing.TB, h Harness, seed uint64) (why string) {
	tb.Helper()
	for _, n := range c.Needs {
		if up := lacks(h, n); up != "" {
			why = fmt.Sprintf("%s is claimed, but the harness %T is no conformance.%s: implement it, drop the claim, or name the case in WithSkip", n, h, up)
			tb.Error(why)
			return why
		}
	}
	pace.start()
	defer pace.stop()
	t := newT(tb, c, h, seed)
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer t.finish()
		defer t.recovered()
		c.Test(t)
	}()
	hangs := make(chan struct{})
	defer pace.after(t.Timing().Guard, func() { close(hangs) })()
	select {
	case <-done:
	case <-hangs:
		t.abandon()
	}
	if tb.Failed() {
		tb.Logf("%s promises: %s\nsee %s", c.path(), c.Contract, strings.Join(c.links(), ", "))
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.why
}

// T is a case's [testing.TB]: with its harness, and helpers that fail the case
// with a sentence. Unlike those of a testing.T its FailNow, Fatal and so the
// functions of testify's require may be called from any goroutine: they end
// that one.
type T struct {
	testing.TB
	h      Harness
	timing Timing
	id     string
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu      sync.Mutex
	rnd     *rand.Rand
	lockers []locker.Locker
	ends    []func() error // of what else it made, the last one first
	over    bool           // the case was given up: nothing may reach TB any more
	why     string         // the first failure
}

func newT(tb testing.TB, c Case, h Harness, seed uint64) *T {
	tb.Helper()
	name := fnv.New64a()
	_, _ = name.Write([]byte(c.path()))
	t := &T{TB: tb, h: h, timing: h.Timing().withDefaults().forMachine(pace.slowdown()), rnd: rand.New(rand.NewPCG(seed, name.Sum64()))}
	// Not only of the seed: a store may outlive the run.
	t.id = fmt.Sprintf("conformance:%s:%x", c.Name, rand.Uint64())
	if m, ok := upgrade[Marked](h); ok {
		t.id = m.KeyMark() + t.id
	}
	t.ctx, t.cancel = context.WithCancel(context.Background())
	return t
}

// Context ends when the case does.
func (t *T) Context() context.Context { return t.ctx }

// Timing is the harness's: zero fields are filled in, and leases are longer if the
// machine is slow.
func (t *T) Timing() Timing { return t.timing }

// Capabilities are the harness's.
func (t *T) Capabilities() Capabilities { return t.h.Capabilities() }

// Harness is what the case runs on.
func (t *T) Harness() Harness { return t.h }

// Inspector is the harness as one; for cases with [NeedInspect].
func (t *T) Inspector() Inspector { return must[Inspector](t.h) }

// Breaker is the harness as one; for cases with [NeedBreak].
func (t *T) Breaker() Breaker { return must[Breaker](t.h) }

// Faults is the harness as one; for cases with [NeedFaults].
func (t *T) Faults() Faults { return must[Faults](t.h) }

// Servers is the harness as a ServerFaults; for cases with [NeedServers].
func (t *T) Servers() ServerFaults { return must[ServerFaults](t.h) }

// Planter is the harness as one; for cases with [NeedPlant].
func (t *T) Planter() Planter { return must[Planter](t.h) }

// IntN returns a random number below n, reproducible by [WithSeed].
func (t *T) IntN(n int) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.rnd.IntN(n)
}

// Key returns a key of the case's own, the same for the same name.
func (t *T) Key(name string) string { return t.id + ":" + name }

// Go runs f in a goroutine, which has to end soon after the case's context. The
// channel returned is closed when it does.
func (t *T) Go(f func()) <-chan struct{} {
	done := make(chan struct{})
	t.wg.Add(1)
	go func() {
		defer t.wg.Done()
		defer close(done)
		defer t.recovered()
		f()
	}()
	return done
}

// Locker makes a Locker, which is closed when the case ends. For an Observer opts
// have [WithObserver] instead of package locker's.
func (t *T) Locker(opts ...locker.Option) locker.Locker {
	t.Helper()
	l := t.h.NewLocker(t, append([]locker.Option{WithObserver(nil)}, opts...)...)
	if l == nil {
		t.Fatalf("the harness made no Locker")
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lockers = append(t.lockers, l)
	return l
}

// Lockers makes n Lockers.
func (t *T) Lockers(n int, opts ...locker.Option) []locker.Locker {
	t.Helper()
	ls := make([]locker.Locker, n)
	for i := range ls {
		ls[i] = t.Locker(opts...)
	}
	return ls
}

// finish ends what the case started, while its guard still watches.
func (t *T) finish() {
	t.cancel()
	// A store that was made unreachable must not make each Close last.
	if f, ok := upgrade[Faults](t.h); ok && t.Capabilities().Faults {
		_ = f.Heal()
	}
	if f, ok := upgrade[ServerFaults](t.h); ok && t.Capabilities().Servers {
		_ = f.Recover()
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		t.wg.Wait()
	}()
	late := make(chan struct{})
	defer pace.after(t.timing.Slack, func() { close(late) })()
	select {
	case <-ended:
	case <-late:
		// A Lock that does not mind its context may mind Close.
	}
	t.mu.Lock()
	ls, ends := t.lockers, t.ends
	t.mu.Unlock()
	for _, l := range ls {
		if err := l.Close(); err != nil {
			t.Errorf("Close at the end of the case: %v", err)
		}
	}
	for _, end := range slices.Backward(ends) {
		if err := end(); err != nil {
			t.Errorf("Close at the end of the case: %v", err)
		}
	}
	<-ended
	if b, ok := t.h.(interface{ breaches() []string }); ok {
		for _, what := range b.breaches() {
			t.Errorf("%s (in this case, or in one beside it)", what)
		}
	}
}

// atEnd has the case call f when it ends, after what was given later.
func (t *T) atEnd(f func() error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ends = append(t.ends, f)
}

func (t *T) recovered() {
	if v := recover(); v != nil {
		t.Errorf("panic: %v\n%s", v, debug.Stack())
	}
}

// abandon gives up a case that hangs.
func (t *T) abandon() {
	buf := make([]byte, 1<<20)
	buf = buf[:runtime.Stack(buf, true)]
	t.Errorf("the case did not end within %v; all goroutines:\n\n%s", t.timing.Guard, buf)
	t.cancel()
	t.mu.Lock()
	t.over = true
	t.mu.Unlock()
}

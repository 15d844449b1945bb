// Package suite is what cases are written with: a testing.TB with helpers that fail a case
// with a sentence, Locks that are seen to wait, child processes, and a testing.TB outside of
// go test. It knows Lockers, and no harness: that is package conformance's.
package suite

import (
	"context"
	"hash/fnv"
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/internal/test/pace"
)

// Setup holds what a case runs with.
type Setup struct {
	Name     string // of the case, for what it draws at random
	ID       string // what its keys begin with
	Seed     uint64
	Patience time.Duration // bounds what must happen some time
	Prompt   time.Duration // how long a call takes that waits for nothing
	Slack    time.Duration // how late a goroutine may run
	Guard    time.Duration // bounds the whole case

	NewLocker func(tb testing.TB, opts ...locker.Option) locker.Locker
	// Heal makes the store reachable again when the case is over.
	Heal func()
	// Breaches returns what drivers did that they must not.
	Breaches func() []string
}

// T is a case's [testing.TB] with helpers. Unlike those of a testing.T its FailNow, Fatal and so
// the functions of testify's require may be called from any goroutine: they end
// that one.
type T struct {
	voice
	setup  Setup
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu      sync.Mutex
	rnd     *rand.Rand
	lockers []locker.Locker
	ends    []func() error // of what else it made, the last one first
}

// Run runs test, and returns why it failed, if it did.
func Run(tb testing.TB, s Setup, test func(t *T)) (why string) {
	tb.Helper()
	defer pace.Keep()()
	name := fnv.New64a()
	_, _ = name.Write([]byte(s.Name))
	t := &T{voice: voice{TB: tb}, setup: s, rnd: rand.New(rand.NewPCG(s.Seed, name.Sum64()))}
	t.ctx, t.cancel = context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer t.finish()
		defer t.recovered()
		test(t)
	}()
	hangs, stop := pace.Timeout(s.Guard)
	defer stop()
	select {
	case <-done:
	case <-hangs:
		t.abandon()
	}
	return t.firstFailure()
}

// Context ends when the case does.
func (t *T) Context() context.Context { return t.ctx }

// IntN returns a random number below n, reproducible by the seed.
func (t *T) IntN(n int) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.rnd.IntN(n)
}

// Key returns a key of the case's own, the same for the same name.
func (t *T) Key(name string) string { return t.setup.ID + ":" + name }

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

// Together runs f n times at once, and returns when all have ended.
func (t *T) Together(n int, f func(i int)) { t.Begin(n, f)() }

// Begin runs f n times at once. wait returns when all have ended.
func (t *T) Begin(n int, f func(i int)) (wait func()) {
	var all sync.WaitGroup
	start := make(chan struct{})
	for i := range n {
		all.Add(1)
		t.Go(func() {
			defer all.Done()
			<-start
			f(i)
		})
	}
	close(start)
	return all.Wait
}

// Locker makes a Locker, which is closed when the case ends. For an Observer opts
// have [WithObserver] instead of package locker's.
func (t *T) Locker(opts ...locker.Option) locker.Locker {
	t.Helper()
	l := t.setup.NewLocker(t, append([]locker.Option{WithObserver(nil)}, opts...)...)
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

// AtEnd calls f when the case ends, after what was given later.
func (t *T) AtEnd(f func() error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ends = append(t.ends, f)
}

// finish ends what the case started, while its guard still watches.
func (t *T) finish() {
	t.cancel()
	// A store that was made unreachable must not make each Close last.
	t.setup.Heal()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		t.wg.Wait()
	}()
	late, stop := pace.Timeout(t.setup.Slack)
	defer stop()
	select {
	case <-ended:
	case <-late:
		// A Lock that does not mind its context may mind Close.
	}
	t.mu.Lock()
	ls, ends := t.lockers, t.ends
	t.mu.Unlock()
	var closes []func() error
	for _, l := range ls {
		closes = append(closes, l.Close)
	}
	slices.Reverse(ends)
	for _, end := range append(closes, ends...) {
		if err := end(); err != nil {
			t.Errorf("Close at the end of the case: %v", err)
		}
	}
	<-ended
	for _, what := range t.setup.Breaches() {
		t.Errorf("%s (in this case, or in one beside it)", what)
	}
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
	t.Errorf("the case did not end within %v; all goroutines:\n\n%s", t.setup.Guard, buf)
	t.cancel()
	t.voice.mu.Lock()
	t.over = true
	t.voice.mu.Unlock()
}

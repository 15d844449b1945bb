package conformance

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// Check runs the suite without go test, for programs that compare strategies: the cases of
// [Run], with progress called (by one goroutine at a time) as each ends; nil is no
// progress. When ctx ends, the cases that have not begun are left out. The error is about
// opts or newHarness, not about cases. What a harness starts as processes must be in the
// program: see [Main].
func Check(ctx context.Context, newHarness HarnessMaker, progress func(Result), opts ...Option) (Report, error) {
	r, err := newRunner(opts)
	if err != nil {
		return Report{}, err
	}
	root := newRecorder(ctx, "conformance")
	defer root.cleanUp()
	var shared Harness
	root.run(func() { shared = newHarness(root) })
	if shared == nil || root.Failed() {
		return Report{}, errors.New("conformance: no harness: " + root.said())
	}
	results, byMode := r.plan(shared)
	var mu sync.Mutex
	run := func(c Case) {
		if ctx.Err() != nil {
			return
		}
		tb, start, why := newRecorder(context.WithoutCancel(ctx), c.path()), time.Now(), ""
		tb.run(func() {
			h := shared
			if c.Mode != Parallel {
				h = newHarness(tb)
			}
			why = c.run(tb, h, r.seed)
		})
		tb.cleanUp()
		if tb.Failed() && why == "" {
			why = tb.said()
		}
		mu.Lock()
		defer mu.Unlock()
		if res := results.ran(c, tb.Failed(), time.Since(start), why); progress != nil {
			progress(res)
		}
	}
	var all sync.WaitGroup
	slots := make(chan struct{}, r.parallel)
	for _, c := range slices.Concat(byMode[Parallel], byMode[Isolated]) {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			run(c)
		})
	}
	all.Wait()
	for _, c := range byMode[Serial] {
		run(c)
	}
	report := results.result()
	if r.out != nil {
		_, _ = fmt.Fprint(r.out, report)
	}
	return report, nil
}

// recorder is a testing.TB outside of go test. It has the methods that cases and harnesses
// call; the others panic, which fails the case.
type recorder struct {
	testing.TB // nil
	name       string
	ctx        context.Context
	end        context.CancelFunc

	mu       sync.Mutex
	failed   bool
	lines    []string
	cleanups []func()
}

func newRecorder(ctx context.Context, name string) *recorder {
	tb := &recorder{name: name}
	tb.ctx, tb.end = context.WithCancel(ctx)
	return tb
}

// run calls f as a test is called: FailNow ends it.
func (tb *recorder) run(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			if v := recover(); v != nil {
				tb.Errorf("panic: %v\n%s", v, debug.Stack())
			}
		}()
		f()
	}()
	<-done
}

func (tb *recorder) cleanUp() {
	tb.end()
	for {
		tb.mu.Lock()
		n := len(tb.cleanups)
		if n == 0 {
			tb.mu.Unlock()
			return
		}
		f := tb.cleanups[n-1]
		tb.cleanups = tb.cleanups[:n-1]
		tb.mu.Unlock()
		tb.run(f)
	}
}

// said is all that was logged.
func (tb *recorder) said() string {
	tb.mu.Lock()
	defer tb.mu.Unlock()
	return strings.Join(tb.lines, "\n")
}

func (tb *recorder) Name() string             { return tb.name }
func (tb *recorder) Helper()                  {}
func (tb *recorder) Context() context.Context { return tb.ctx }

func (tb *recorder) Cleanup(f func()) {
	tb.mu.Lock()
	defer tb.mu.Unlock()
	tb.cleanups = append(tb.cleanups, f)
}

func (tb *recorder) Failed() bool {
	tb.mu.Lock()
	defer tb.mu.Unlock()
	return tb.failed
}

func (tb *recorder) Fail() {
	tb.mu.Lock()
	defer tb.mu.Unlock()
	tb.failed = true
}

func (tb *recorder) FailNow() {
	tb.Fail()
	runtime.Goexit()
}

func (tb *recorder) Log(args ...any) {
	tb.mu.Lock()
	defer tb.mu.Unlock()
	tb.lines = append(tb.lines, strings.TrimSuffix(fmt.Sprintln(args...), "\n"))
}

func (tb *recorder) Logf(format string, args ...any) { tb.Log(fmt.Sprintf(format, args...)) }

func (tb *recorder) Error(args ...any) {
	tb.Log(args...)
	tb.Fail()
}

func (tb *recorder) Errorf(format string, args ...any) {
	tb.Logf(format, args...)
	tb.Fail()
}

func (tb *recorder) Fatal(args ...any) {
	tb.Log(args...)
	tb.FailNow()
}

func (tb *recorder) Fatalf(format string, args ...any) {
	tb.Logf(format, args...)
	tb.FailNow()
}

// Skip fails, as in a case: what cannot run is to be left out.
func (tb *recorder) Skip(args ...any) { tb.Fatal(append([]any{"skipped:"}, args...)...) }

// Skipf fails likewise.
func (tb *recorder) Skipf(format string, args ...any) { tb.Fatalf("skipped: "+format, args...) }

// TempDir is removed with the other clean-ups.
func (tb *recorder) TempDir() string {
	dir, err := os.MkdirTemp("", "conformance")
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

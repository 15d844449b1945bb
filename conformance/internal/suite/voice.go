package suite

import (
	"fmt"
	"runtime"
	"sync"
	"testing"
)

// voice passes on what a test reports by its testing.TB, from any goroutine: nothing reaches a
// test that was given up, and FailNow ends the calling goroutine only.
type voice struct {
	testing.TB

	mu   sync.Mutex
	over bool   // the test was given up
	why  string // the first failure
}

// Log is testing.TB's.
func (v *voice) Log(args ...any) {
	v.Helper()
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.over {
		v.TB.Log(args...)
	}
}

// Fail is testing.TB's.
func (v *voice) Fail() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.over {
		v.TB.Fail()
	}
}

// FailNow is testing.TB's, for any goroutine.
func (v *voice) FailNow() {
	v.Fail()
	runtime.Goexit()
}

// Error is testing.TB's. The first failure is kept.
func (v *voice) Error(args ...any) {
	v.Helper()
	what := fmt.Sprint(args...)
	v.mu.Lock()
	if v.why == "" {
		v.why = what
	}
	v.mu.Unlock()
	v.Log(what)
	v.Fail()
}

// Logf is testing.TB's.
func (v *voice) Logf(format string, args ...any) { v.Helper(); v.Log(fmt.Sprintf(format, args...)) }

// Errorf is testing.TB's.
func (v *voice) Errorf(format string, args ...any) { v.Helper(); v.Error(fmt.Sprintf(format, args...)) }

// Fatal is testing.TB's, for any goroutine.
func (v *voice) Fatal(args ...any) { v.Helper(); v.Error(args...); v.FailNow() }

// Fatalf is testing.TB's, for any goroutine.
func (v *voice) Fatalf(format string, args ...any) { v.Helper(); v.Fatal(fmt.Sprintf(format, args...)) }

// Skip fails: a case that cannot run says so by its Needs.
func (v *voice) Skip(args ...any) { v.Helper(); v.Fatal(append([]any{"skipped: "}, args...)...) }

// Skipf fails like Skip.
func (v *voice) Skipf(format string, args ...any) { v.Helper(); v.Skip(fmt.Sprintf(format, args...)) }

// SkipNow fails like Skip.
func (v *voice) SkipNow() { v.Helper(); v.Skip() }

// firstFailure returns the first failure, "" if there is none.
func (v *voice) firstFailure() string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.why
}

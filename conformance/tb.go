package conformance

import (
	"fmt"
	"runtime"
)

// The methods of testing.TB that a case's goroutines may call. They do not
// reach a test that has ended, and FailNow ends the calling goroutine only.

// Log is testing.TB's.
func (t *T) Log(args ...any) {
	t.Helper()
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.over {
		t.TB.Log(args...)
	}
}

// Logf is testing.TB's.
func (t *T) Logf(format string, args ...any) {
	t.Helper()
	t.Log(fmt.Sprintf(format, args...))
}

// Error is testing.TB's.
func (t *T) Error(args ...any) {
	t.Helper()
	t.blame(fmt.Sprint(args...))
	t.Fail()
}

// blame logs a failure, and keeps the first.
func (t *T) blame(what string) {
	t.Helper()
	t.mu.Lock()
	if t.why == "" {
		t.why = what
	}
	t.mu.Unlock()
	t.Log(what)
}

// Errorf is testing.TB's.
func (t *T) Errorf(format string, args ...any) {
	t.Helper()
	t.blame(fmt.Sprintf(format, args...))
	t.Fail()
}

// Fail is testing.TB's.
func (t *T) Fail() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.over {
		t.TB.Fail()
	}
}

// FailNow is testing.TB's, for any goroutine.
func (t *T) FailNow() {
	t.Fail()
	runtime.Goexit()
}

// Fatal is testing.TB's, for any goroutine.
func (t *T) Fatal(args ...any) {
	t.Helper()
	t.blame(fmt.Sprint(args...))
	t.FailNow()
}

// Fatalf is testing.TB's, for any goroutine.
func (t *T) Fatalf(format string, args ...any) {
	t.Helper()
	t.blame(fmt.Sprintf(format, args...))
	t.FailNow()
}

// Skip fails: a case that cannot run says so by its Needs.
func (t *T) Skip(args ...any) { t.Helper(); t.Fatal(append([]any{"skipped:"}, args...)...) }

// Skipf fails like Skip.
func (t *T) Skipf(format string, args ...any) { t.Helper(); t.Fatalf("skipped: "+format, args...) }

// SkipNow fails like Skip.
func (t *T) SkipNow() { t.Helper(); t.Fatal("skipped") }

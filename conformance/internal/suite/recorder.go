package suite

import (
	"context"
	"fmt"
	"os"
	"runtime/debug"
	"strings"
	"sync"
	"testing"
)

// Recorder is a testing.TB outside of go test. It has the methods that cases and harnesses
// call; the others panic, which fails the case.
type Recorder struct {
	voice
	book *book
}

// NewRecorder returns a Recorder for a test of this name, whose context ends with ctx and
// with CleanUp.
func NewRecorder(ctx context.Context, name string) *Recorder {
	b := &book{name: name}
	b.ctx, b.end = context.WithCancel(ctx)
	return &Recorder{voice{TB: b}, b}
}

// Do calls f as a test is called: FailNow ends it.
func (r *Recorder) Do(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			if v := recover(); v != nil {
				r.Errorf("panic: %v\n%s", v, debug.Stack())
			}
		}()
		f()
	}()
	<-done
}

// CleanUp ends the context and does what Cleanup was given.
func (r *Recorder) CleanUp() {
	r.book.end()
	for f := r.book.cleanup(); f != nil; f = r.book.cleanup() {
		r.Do(f)
	}
}

// Said returns all that was logged.
func (r *Recorder) Said() string {
	r.book.mu.Lock()
	defer r.book.mu.Unlock()
	return strings.Join(r.book.lines, "\n")
}

// TempDir is removed with the other clean-ups.
func (r *Recorder) TempDir() string {
	dir, err := os.MkdirTemp("", "conformance")
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// book holds what a voice needs to be a testing.TB.
type book struct {
	testing.TB // nil
	name       string
	ctx        context.Context
	end        context.CancelFunc

	mu       sync.Mutex
	failed   bool
	lines    []string
	cleanups []func()
}

func (b *book) Name() string             { return b.name }
func (b *book) Helper()                  {}
func (b *book) Context() context.Context { return b.ctx }

func (b *book) Cleanup(f func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.cleanups = append(b.cleanups, f)
}

// cleanup takes off the last clean-up, nil if there is none.
func (b *book) cleanup() (f func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if n := len(b.cleanups); n > 0 {
		f, b.cleanups = b.cleanups[n-1], b.cleanups[:n-1]
	}
	return f
}

func (b *book) Failed() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.failed
}

func (b *book) Fail() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.failed = true
}

func (b *book) Log(args ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lines = append(b.lines, strings.TrimSuffix(fmt.Sprintln(args...), "\n"))
}

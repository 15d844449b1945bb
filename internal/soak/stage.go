package soak

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"
)

// stage is the testing.TB of a round, for servers that are started as in a test. It
// has no more than these need.
type stage struct {
	testing.TB // nil
	ctx        context.Context
	cancel     context.CancelFunc

	mu       sync.Mutex
	cleanups []func()
	err      error
}

func newStage(ctx context.Context) *stage {
	s := &stage{}
	s.ctx, s.cancel = context.WithCancel(ctx)
	return s
}

// run runs f, which may end by a Fatalf, and cleans up.
func (s *stage) run(f func()) error {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	<-done
	s.cancel()
	for len(s.cleanups) > 0 {
		last := len(s.cleanups) - 1
		clean := s.cleanups[last]
		s.cleanups = s.cleanups[:last]
		clean()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// fail notes that the round cannot be played to its end.
func (s *stage) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.err = err
	}
	s.cancel()
}

func (s *stage) Helper()                  {}
func (s *stage) Name() string             { return "soak" }
func (s *stage) Context() context.Context { return s.ctx }

func (s *stage) Cleanup(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cleanups = append(s.cleanups, f)
}

func (s *stage) Errorf(format string, args ...any) { s.fail(fmt.Errorf(format, args...)) }
func (s *stage) Error(args ...any)                 { s.fail(fmt.Errorf("%s", fmt.Sprint(args...))) }
func (s *stage) Logf(string, ...any)               {}

func (s *stage) Fatalf(format string, args ...any) {
	s.Errorf(format, args...)
	runtime.Goexit()
}

func (s *stage) Fatal(args ...any) {
	s.Error(args...)
	runtime.Goexit()
}

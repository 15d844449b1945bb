package soak

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
)

// stage is the testing.TB of a round, for the helpers that start servers in tests. It has
// no more methods than these need.
type stage struct {
	testing.TB // nil
	ctx        context.Context
	cancel     context.CancelCauseFunc

	mu       sync.Mutex
	cleanups []func()
}

func newStage(ctx context.Context) *stage {
	s := &stage{}
	s.ctx, s.cancel = context.WithCancelCause(ctx)
	return s
}

var errPlayed = errors.New("the round is over")

// run runs f, which may end by Fatal, and cleans up. Its error is the first one that f had.
func (s *stage) run(f func()) error {
	var running sync.WaitGroup
	running.Go(f)
	running.Wait()
	for i := len(s.cleanups) - 1; i >= 0; i-- {
		s.cleanups[i]()
	}
	s.cancel(errPlayed)
	if err := context.Cause(s.ctx); !errors.Is(err, errPlayed) {
		return err
	}
	return nil
}

func (s *stage) Helper()                  {}
func (s *stage) Name() string             { return "soak" }
func (s *stage) Context() context.Context { return s.ctx }

func (s *stage) Cleanup(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cleanups = append(s.cleanups, f)
}

// Fatalf notes that the round cannot be played to its end.
func (s *stage) Fatalf(format string, args ...any) {
	s.cancel(fmt.Errorf(format, args...))
	runtime.Goexit()
}

func (s *stage) Fatal(args ...any) { s.Fatalf("%s", fmt.Sprint(args...)) }

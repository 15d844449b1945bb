//go:build unix

package report

import (
	"context"
	"fmt"
	"testing"
)

// TB is the testing.TB that servers are started for.
type TB struct {
	testing.TB // nil: they need no more than is here
	cleanups   []func()
}

// Helper does nothing.
func (*TB) Helper() {}

// Cleanup registers what Close does, in the opposite order.
func (t *TB) Cleanup(f func()) { t.cleanups = append(t.cleanups, f) }

// Fatalf panics: the case has failed.
func (*TB) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

// Errorf panics, too.
func (t *TB) Errorf(format string, args ...any) { t.Fatalf(format, args...) }

// Context never ends.
func (*TB) Context() context.Context { return context.Background() }

// Close ends the servers.
func (t *TB) Close() {
	for i := len(t.cleanups) - 1; i >= 0; i-- {
		t.cleanups[i]()
	}
}

package locker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/distlock/locker/internal/bound"
)

// waitBudget is one WithWait that several Locks share (LockAll, RWLock, Semaphore).
type waitBudget struct {
	d     time.Duration // noWaitBound
	start time.Time
}

func waitOf(l Locker, opts []LockOption) (waitBudget, error) {
	set := defaultSettings()
	if e, ok := ClientOf(l); ok {
		set = e.set
	}
	call, err := set.forCall(opts)
	return waitBudget{call.wait, time.Now()}, err
}

func (w waitBudget) isTry() bool { return w.d == 0 }

func (w waitBudget) isOver() bool { return w.d != noWaitBound && !time.Now().Before(w.end()) }

// fail returns the error of a call whose wait is over, and whose last attempt has failed with err.
func (w waitBudget) fail(l Locker, key string, err error) error {
	e := &opError{op: "lock", key: key, kind: ErrNotAcquired, why: fmt.Errorf("not within %v", w.d)}
	if c, ok := ClientOf(l); ok {
		e.strategy = c.name
	}
	if errors.Is(err, ErrUnavailable) {
		e.kind, e.why = ErrUnavailable, errNoAnswer
	}
	return e
}

func (w waitBudget) end() time.Time { return w.start.Add(w.d) }

// rest returns opts, with w as the wait.
func (w waitBudget) rest(opts []LockOption) []LockOption {
	return append(slices.Clip(opts), lockOption(func(c *callSettings) { c.wait, c.partOf = w.d, &w }))
}

// bound returns a child of ctx that ends when the wait is over.
func (w waitBudget) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx = bound.Undated(ctx)
	if w.d == noWaitBound || w.isTry() {
		return context.WithCancel(ctx)
	}
	return context.WithDeadline(ctx, w.end())
}

package locker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/distlock/locker/internal/bound"
)

// waiting is a call's wait, of which several Locks take their part.
type waiting struct {
	d     time.Duration // noWaitBound
	start time.Time
}

func waitOf(l Locker, opts []LockOption) (waiting, error) {
	set := defaultSettings()
	if e, ok := ClientOf(l); ok {
		set = e.set
	}
	call, err := set.forCall(opts)
	return waiting{call.wait, time.Now()}, err
}

func (w waiting) isTry() bool { return w.d == 0 }

func (w waiting) isOver() bool { return w.d != noWaitBound && !time.Now().Before(w.end()) }

// fail is the error of a call whose wait is over, whose last attempt has failed with err.
func (w waiting) fail(l Locker, key string, err error) error {
	e := &opError{op: "lock", key: key, kind: ErrNotAcquired, why: fmt.Errorf("not within %v", w.d)}
	if c, ok := ClientOf(l); ok {
		e.strategy = c.name
	}
	if errors.Is(err, ErrUnavailable) {
		e.kind, e.why = ErrUnavailable, errNoAnswer
	}
	return e
}

func (w waiting) end() time.Time { return w.start.Add(w.d) }

// rest are opts, with w as the wait.
func (w waiting) rest(opts []LockOption) []LockOption {
	return append(slices.Clip(opts), lockOption(func(c *callSettings) { c.wait, c.partOf = w.d, &w }))
}

// bound is ctx, ended when the wait is over.
func (w waiting) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx = bound.Undated(ctx)
	if w.d == noWaitBound || w.isTry() {
		return context.WithCancel(ctx)
	}
	return context.WithDeadline(ctx, w.end())
}

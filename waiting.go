package locker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// waiting is a call's wait, of which several Locks take their part.
type waiting struct {
	d     time.Duration // noWaitBound
	start time.Time
}

func waitOf(l Locker, opts []LockOption) (waiting, error) {
	set := defaultSettings()
	if e, ok := l.(*engine); ok {
		set = e.set
	}
	call, err := set.forCall(opts)
	return waiting{call.wait, time.Now()}, err
}

func (w waiting) isTry() bool { return w.d == 0 }

func (w waiting) isOver() bool { return w.d != noWaitBound && time.Since(w.start) >= w.d }

// fail is the error of a call whose wait is over, whose last attempt has failed with err.
func (w waiting) fail(l Locker, key string, err error) error {
	e := &opError{op: "lock", key: key, kind: ErrNotAcquired, why: fmt.Errorf("not within %v", w.d)}
	if l, ok := l.(*engine); ok {
		e.strategy = l.name
	}
	if errors.Is(err, ErrUnavailable) {
		e.kind, e.why = ErrUnavailable, errNoAnswer
	}
	return e
}

// left is at least an instant of a wait that is over: 0 would be an attempt.
func (w waiting) left() time.Duration { return max(1, w.d-time.Since(w.start)) }

// rest are opts, with what is left of the wait.
func (w waiting) rest(opts []LockOption) []LockOption {
	if w.d == noWaitBound || w.isTry() {
		return opts
	}
	return append(slices.Clip(opts), WithWait(w.left()))
}

// bound is ctx, ended when the wait is over.
func (w waiting) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	if w.d == noWaitBound || w.isTry() {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, w.left())
}

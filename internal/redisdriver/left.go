package redisdriver

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/distlock/locker/driver"
)

// hungAfter returns how long a command whose caller has returned is waited for: longer than
// a batch may take. A client that is not go-redis's own need not keep any timeout.
func (l *lane) hungAfter() time.Duration { return l.batchTimeout() + time.Second }

// leftBehind are the commands that their callers left on their way.
type leftBehind struct {
	mu sync.Mutex
	fs []*flight
}

func (b *leftBehind) add(f *flight) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fs = append(b.fs, f)
	b.prune()
}

// prune forgets those that have an end; b.mu is held.
func (b *leftBehind) prune() {
	now := time.Now()
	b.fs = slices.DeleteFunc(b.fs, func(f *flight) bool {
		select {
		case <-f.over:
			return true
		default:
			return now.After(f.until)
		}
	})
}

// wait returns when no command that matches is on its way any more, or with an error
// when ctx ends.
func (b *leftBehind) wait(ctx context.Context, matches func(*flight) bool) error {
	b.mu.Lock()
	b.prune()
	var all []*flight
	for _, f := range b.fs {
		if matches(f) {
			all = append(all, f)
		}
	}
	b.mu.Unlock()
	for _, f := range all {
		hung := time.NewTimer(time.Until(f.until))
		select {
		case <-f.over:
		case <-hung.C:
		case <-ctx.Done():
			hung.Stop()
			return notSent(fmt.Errorf("an earlier command of the claim is unanswered: %w", ctx.Err()))
		}
		hung.Stop()
	}
	return nil
}

// WaitFor waits for done, for d at most.
func WaitFor(done <-chan struct{}, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	}
}

// notSent is the error of a command that did not leave this process.
func notSent(err error) error {
	return &driver.StoreError{Err: fmt.Errorf("it was not sent: %w", err), NotApplied: true}
}

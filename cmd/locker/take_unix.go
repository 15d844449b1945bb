//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/driver"
	"github.com/spf13/cobra"
)

// named is err with the name of the holder, if that can be had.
func (f *runFlags) named(c *cobra.Command, locks *locker.Client, err error) error {
	ctx, cancel := context.WithTimeout(c.Context(), tellAfter)
	defer cancel()
	if h, inspected := locks.Inspect(ctx, f.key); inspected == nil && h.Held {
		return fmt.Errorf("%w, by %s", err, whom(h))
	}
	return err
}

// tellWait reports trouble with the store, and shows a waiting person the holder.
func (f *runFlags) tellWait(c *cobra.Command, locks *locker.Client) {
	ctx, cancel := context.WithTimeout(c.Context(), tellAfter)
	defer cancel()
	switch h, err := locks.Inspect(ctx, f.key); {
	case errors.Is(err, locker.ErrClosed): // the wait is over
	case driver.IsPermanent(err): // such as a missing permission to inspect; Lock reports what stops it
	case err != nil:
		fmt.Fprintf(c.ErrOrStderr(), "locker: still trying: %s\n", f.explained(err))
	case h.Held && isTerminal(c.ErrOrStderr()):
		fmt.Fprintf(c.ErrOrStderr(), "locker: waiting for %q, held by %s\n", f.key, whom(h))
	}
}

// defaultGrace is the grace where a third of the TTL is more.
const defaultGrace = 10 * time.Second

// fit makes the grace a part of the TTL, with some time for the kill. The lease ends for us when
// no more than these are left of the lock in the store ([locker.WithMargin]): COMMAND is dead when
// another one can have it.
func (f *runFlags) fit(ttl time.Duration) error {
	switch {
	case f.grace < 0:
		f.grace = min(defaultGrace, ttl/3)
	case f.grace > ttl*2/5:
		return &exit{exitUsage, fmt.Errorf("--grace=%v: at most two fifths of the TTL, which is %v (--ttl): COMMAND is to be dead when the lock ends; see locker run --help", f.grace, ttl)}
	}
	f.margin = f.grace + min(ttl/10, time.Second)
	return nil
}

// take waits for the lock, or for a signal.
func (f *runFlags) take(ctx context.Context, locks *locker.Client, strategy string, signals <-chan os.Signal) (*locker.Lease, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	locked := make(chan struct{})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		select {
		case s := <-signals:
			cancel(&signalled{s.String(), int(s.(syscall.Signal))})
		case <-locked:
		}
	}()
	opts := []locker.LockOption{locker.WithMargin(f.margin)}
	if f.maxHold > 0 {
		opts = append(opts, locker.WithMaxHold(f.maxHold))
	}
	lease, err := f.lock.lock(ctx, locks, strategy, f.key, opts...)
	close(locked)
	<-ended
	if s, ok := errors.AsType[*signalled](context.Cause(ctx)); ok {
		if err == nil {
			_ = lease.Unlock(ctx)
		}
		return nil, s
	}
	return lease, err
}

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"

	"github.com/distlock/locker"
	"github.com/spf13/cobra"
)

// Exit codes of locker run, beside those of the command it runs. They are high, as those
// of env and timeout are, because few commands have such codes of their own.
const (
	exitLost        = 122 // the lock was lost while the command ran
	exitUnavailable = 123 // the store could not be used
	exitNotAcquired = 124 // the lock stayed taken
	exitUsage       = 125 // wrong flags, or a wrong configuration
	exitCannotRun   = 126 // the command is there, but cannot be run
	exitNotFound    = 127 // the command is not there
	exitSignal      = 128 // and the number of the signal
	exitInterrupted = 130 // as of SIGINT
)

// exit is an error with an exit code. Without err there is nothing left to print.
type exit struct {
	code int
	err  error
}

func (e *exit) Error() string { return fmt.Sprint("exit code ", e.code, ": ", e.err) }

func (e *exit) Unwrap() error { return e.err }

// untilInterrupt returns c's context, which ends at Ctrl-C. The next Ctrl-C ends the process. Where interrupts are
// ignored, as in the background of a script, they stay ignored.
func untilInterrupt(c *cobra.Command) (ctx context.Context, stop func()) {
	if signal.Ignored(os.Interrupt) {
		return context.WithCancel(c.Context())
	}
	ctx, stop = signal.NotifyContext(c.Context(), os.Interrupt)
	context.AfterFunc(ctx, stop)
	return ctx, stop
}

// signalled is the end of a wait by a signal.
type signalled struct {
	name   string
	number int
}

func (s *signalled) Error() string { return s.name }

// notLocked returns the command's error for an error of Lock.
func notLocked(err error, key string, conflictCode int, store *storeFlags) error {
	var s *signalled
	var e *exit
	switch {
	case errors.As(err, &e):
		return e
	case errors.As(err, &s):
		return &exit{exitSignal + s.number, fmt.Errorf("%s while waiting for %q; the command was not run", s.name, key)}
	case errors.Is(err, locker.ErrNotAcquired) || errors.Is(err, context.DeadlineExceeded):
		return &exit{conflictCode, fmt.Errorf("%w; the command was not run (--wait says how long to wait)", err)}
	case errors.Is(err, locker.ErrUnavailable):
		return &exit{exitUnavailable, fmt.Errorf("%w; the command was not run", store.hinted(err))}
	}
	return &exit{exitUsage, err}
}

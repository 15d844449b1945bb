package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"syscall"

	"github.com/distlock/locker"
	"github.com/spf13/cobra"
)

const holdLong = `Holds the lock KEY until its standard input ends, or HUP, INT or TERM arrives. Then it gives
the lock back. Once it has the lock, it prints a line on standard output: the fencing
token. It prints the word "held" instead if there is no token, or if it has permits (--of).
When somebody asks for the lock (locker ask), it prints the line "asked".

In a script:

  coproc LOCK { locker hold --wait 30s deploy; }
  read -r token <&"${LOCK[0]}" || exit 1
  ...
  exec {LOCK[1]}>&-       # gives it back

When the lock is lost, it exits with code 122. Unlike locker run, it stops no other process:
the script has to check the code. While the store does not answer, it takes some seconds to give
the lock back; a second Ctrl-C ends it at once, and the lock then ends with its TTL.

` + lockHelp + `

` + storeHelp + `

Exit codes: 0 the lock was given back, 1 it was given back because the output could not be
written, 122 it was lost, 123 the store could not be used, 124 it stayed taken, 125 wrong usage,
128 and the number of the signal that ended the wait.`

type holdFlags struct {
	storeFlags
	lock lockFlags
}

func holdCommand() *cobra.Command {
	f := holdFlags{}
	c := &cobra.Command{
		Use:                   "hold [flags] KEY",
		Short:                 "Hold a lock until standard input ends",
		Long:                  holdLong,
		Example:               "  locker hold --url setnx+redis://localhost:6379 deploy",
		DisableFlagsInUseLine: true,
		Args:                  oneKey,
		RunE:                  func(c *cobra.Command, args []string) error { return f.hold(c, args[0]) },
	}
	f.add(c)
	f.lock.add(c)
	return c
}

func (f *holdFlags) hold(c *cobra.Command, key string) error {
	if err := f.lock.check(c); err != nil {
		return err
	}
	cfg, err := f.configuration(c)
	if err != nil {
		return &exit{exitUsage, err}
	}
	cfg.Options = append(cfg.Options, locker.WithMetadata("command", "locker hold"))
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) // else a reader that is gone ends this process, and leaves the lock
	locks, release, err := f.open(c, cfg)
	if err != nil {
		return err
	}
	defer release()
	ctx, cancel := context.WithCancelCause(c.Context())
	defer cancel(nil)
	signals := make(chan os.Signal, 1) // for as long as the process lives: a late TERM must not replace the exit code
	for _, s := range []os.Signal{syscall.SIGHUP, os.Interrupt, syscall.SIGTERM} {
		if !signal.Ignored(s) { // by nohup, or in the background of a script
			signal.Notify(signals, s)
		}
	}
	go func() {
		if s, ok := (<-signals).(syscall.Signal); ok {
			// The next Ctrl-C ends the process. HUP and TERM may come twice at once, from a terminal and its shell or from
			// timeout(1): they leave Unlock its time.
			signal.Reset(os.Interrupt)
			cancel(&signalled{name: s.String(), number: int(s)})
		}
	}()
	go func() { // its end while it waits is one, too: nobody is there any more
		_, _ = io.Copy(io.Discard, c.InOrStdin())
		cancel(errStdinEnded)
	}()
	lease, err := f.lock.lock(ctx, locks, strategyOf(cfg), key)
	if err != nil {
		return f.notHeld(ctx, key, err)
	}
	return f.keep(ctx, c, lease)
}

var errStdinEnded = errors.New("standard input ended")

// notHeld returns the command's error for an error of Lock.
func (f *holdFlags) notHeld(ctx context.Context, key string, err error) error {
	var s *signalled
	var e *exit
	switch cause := context.Cause(ctx); {
	case errors.As(err, &e):
		return e
	case errors.Is(err, locker.ErrInvalid): // whatever has ended the wait
		return &exit{exitUsage, err}
	case errors.As(cause, &s):
		return &exit{exitSignal + s.number, fmt.Errorf("%s while waiting for %q", s.name, key)}
	case errors.Is(cause, errStdinEnded):
		return &exit{exitNotAcquired, fmt.Errorf("standard input ended while waiting for %q", key)}
	case errors.Is(err, locker.ErrNotAcquired):
		return &exit{exitNotAcquired, err}
	}
	return f.storeError(err)
}

// keep holds the lock until ctx ends, it is lost, or what it prints cannot be written.
func (f *holdFlags) keep(ctx context.Context, c *cobra.Command, lease *locker.Lease) error {
	word := "held"
	if token := f.lock.token(lease); token != 0 {
		word = strconv.FormatInt(token, 10)
	}
	_, unread := fmt.Fprintln(c.OutOrStdout(), word)
	listens, asked := make(chan (<-chan struct{}), 1), (<-chan struct{})(nil)
	go func() { listens <- lease.ReleaseRequested() }() // which takes up to a second
	for unread == nil {
		select {
		case asked = <-listens:
		case <-asked:
			_, unread = fmt.Fprintln(c.OutOrStdout(), "asked")
			asked = nil
		case <-lease.Lost():
			return &exit{exitLost, fmt.Errorf("%q was lost: %s", lease.Key(), plain(lease.Err()))}
		case <-ctx.Done():
			return f.giveBack(c, lease)
		}
	}
	if err := f.giveBack(c, lease); err != nil {
		return err
	}
	return &exit{exitNone, fmt.Errorf("%q was given back: nobody reads the output: %w", lease.Key(), unread)}
}

func (f *holdFlags) giveBack(c *cobra.Command, lease *locker.Lease) error {
	switch err := lease.Unlock(c.Context()); {
	case errors.Is(err, locker.ErrLost):
		return &exit{exitLost, fmt.Errorf("%q was lost", lease.Key())}
	case err != nil:
		return f.storeError(err)
	}
	return nil
}

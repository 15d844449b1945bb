package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/distlock/locker"
	"github.com/mattn/go-isatty"
	"github.com/spf13/cobra"
)

const unlockLong = `Takes the lock KEY from its holder, and wakes those who wait for it. From a key with permits
it takes all permits that it shows. It shows the holder, and asks before it takes the
lock; with --yes it does not ask. If the holder has changed meanwhile, it does not take the lock. (It recognises
a lock of another library by its value only. The next lock may have this value, too. The holder
has not changed if its process hands the lock on inside itself.)

The holder learns of the loss at once if it listens for requests (see locker ask), else at its
next renewal, a third of the TTL later by default.
Until then it may go on while the next holder has the lock: use this command for holders
that are gone, or whose resource refuses a smaller fencing token.

` + storeHelp + `

Exit codes: 0 it was taken, 1 it was left alone, 123 the store could not be used, 125 wrong usage,
or the output could not be written, 130 interrupted.`

type unlockFlags struct {
	storeFlags
	force, yes, unknown bool
}

func unlockCommand() *cobra.Command {
	f := unlockFlags{}
	c := &cobra.Command{
		Use:                   "unlock --force KEY",
		Short:                 "Take a lock from its holder",
		Long:                  unlockLong,
		Example:               "  locker unlock --url setnx+redis://localhost:6379 --force deploy",
		DisableFlagsInUseLine: true,
		Args:                  oneKey,
		RunE:                  func(c *cobra.Command, args []string) error { return f.unlock(c, args[0]) },
	}
	f.add(c)
	c.Flags().BoolVar(&f.force, "force", false, "take the lock from its holder")
	c.Flags().BoolVar(&f.unknown, "unknown", false, "with --yes: also delete a value that may be another program's data, and no lock")
	c.Flags().BoolVarP(&f.yes, "yes", "y", false, "do not ask")
	return c
}

func oneKey(c *cobra.Command, args []string) error {
	switch len(args) {
	case 0:
		return fmt.Errorf("KEY is missing: the name of the lock; see %s --help", c.CommandPath())
	case 1:
		return nil
	}
	return fmt.Errorf("one KEY at a time, not %q; see %s --help", args, c.CommandPath())
}

func (f *unlockFlags) unlock(c *cobra.Command, key string) error {
	switch {
	case !f.force:
		return errors.New("only its holder gives a lock back; --force takes it from the holder; see locker unlock --help")
	case !f.yes && !isTerminal(c.InOrStdin()):
		return errors.New("not a terminal: use --yes to unlock without a question")
	}
	a, release, err := f.admin(c)
	if err != nil {
		return err
	}
	defer release()
	ctx, stop := untilInterrupt(c)
	defer stop()
	shown, err := f.holder(ctx, a, key)
	if err != nil {
		return err
	}
	if err := f.agreed(ctx, c, shown); err != nil {
		return err
	}
	h := shown.Holder
	if h.Strategy != "" && h.Limit == 0 { // so that its waiters are woken in its way
		own, release, err := f.as(c, h.Strategy)
		if err != nil {
			return err
		}
		defer release()
		a = own
	}
	targets := []locker.Holder{h}
	if h.Limit > 0 {
		targets = shown.claims
	}
	taken := false
	for _, h := range targets {
		switch err := a.ForceUnlock(ctx, h); {
		case err == nil:
			taken = true
		case ctx.Err() != nil:
			return &exit{exitInterrupted, fmt.Errorf("interrupted: %q may have been taken", key)}
		case errors.Is(err, locker.ErrNotHeld) && h.Limit > 0: // one claim of several
		case errors.Is(err, locker.ErrNotHeld), errors.Is(err, locker.ErrConflict):
			return &exit{exitNone, err}
		default:
			return f.storeError(fmt.Errorf("%w; %q may have been taken", err, key))
		}
	}
	if !taken {
		return &exit{exitNone, fmt.Errorf("%q was left alone: all that had it have changed; inspect it again", key)}
	}
	fmt.Fprintf(c.OutOrStdout(), "%q was taken from its holder\n", key)
	return nil
}

// holder returns the row of a lock that may be taken.
func (f *unlockFlags) holder(ctx context.Context, a *locker.Client, key string) (shown row, err error) {
	h, err := a.Inspect(ctx, key)
	if err == nil && h.Held {
		shown = new(inspectFlags).row(ctx, a, h)
	}
	switch {
	case ctx.Err() != nil:
		return shown, &exit{code: exitInterrupted}
	case errors.Is(err, locker.ErrConflict):
		return shown, &exit{exitNone, err}
	case err != nil:
		return shown, f.storeError(err)
	case shown.state == stateUnknown:
		return shown, &exit{exitUnavailable, errors.New(shown.why)}
	case !shown.Held:
		return shown, &exit{exitNone, fmt.Errorf("%q is free (unlock takes one KEY, not a pattern)", key)}
	case h.Strategy == "" && h.ID == "": // (one with permits has a strategy)
		return shown, &exit{exitNone, fmt.Errorf("%q is not a lock of a library that is known, and cannot be distinguished from what may be there a moment later: delete it with the store's own tools", key)}
	case h.Strategy == "" && f.yes && !f.unknown:
		return shown, &exit{exitNone, fmt.Errorf("%q is held by no library that is known: it may be another program's data; --unknown takes it nevertheless", key)}
	}
	return shown, nil
}

// agreed shows the holder and asks, and returns an error unless the answer is yes. A person sees both, wherever the output goes.
func (f *unlockFlags) agreed(ctx context.Context, c *cobra.Command, shown row) error {
	out := c.OutOrStdout()
	if !f.yes && !isTerminal(out) {
		out = c.ErrOrStderr()
	}
	_, err := fmt.Fprint(out, new(inspectFlags).table([]row{shown}, time.Now()))
	switch {
	case f.yes:
		return nil
	case err != nil:
		return unwritten(err)
	}
	if shown.Strategy == "" {
		fmt.Fprintln(out, "No library is known to lock like this: it may be another program's data, which would be deleted.")
	}
	fmt.Fprint(out, "Take it from this holder? [y/N] ")
	answer := make(chan string, 1)
	go func() { answer <- readLine(c) }()
	select {
	case said := <-answer:
		if said != "y" && said != "yes" {
			return &exit{exitNone, errors.New("it was left alone")}
		}
		return nil
	case <-ctx.Done():
		fmt.Fprintln(out)
		return &exit{code: exitInterrupted}
	}
}

// readLine reads an answer.
func readLine(c *cobra.Command) string {
	line, _ := bufio.NewReader(c.InOrStdin()).ReadString('\n')
	return strings.ToLower(strings.TrimSpace(line))
}

// isTerminal says so of an end of the command.
func isTerminal(end any) bool {
	f, ok := end.(interface{ Fd() uintptr })
	return ok && isatty.IsTerminal(f.Fd())
}

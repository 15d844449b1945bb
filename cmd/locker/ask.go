package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/distlock/locker"
	"github.com/spf13/cobra"
)

const (
	askEvery  = time.Second            // a request may be lost
	lookEvery = 100 * time.Millisecond // until the holder has given the lock up
)

const askLong = `Asks the holder of the lock KEY to give it back, and waits until it has. Nothing is
taken away: the holder stops at a point of its own choice, or not at all. A program that
listens (Lease.ReleaseRequested in Go, locker run --ask-signal) learns of it at once;
others never do.

` + storeHelp + `

Exit codes:
    0  the holder has given the lock back (another one may have it now), or KEY is free;
       with --wait 0: or the holder was asked
    1  the holder cannot be asked: it is no program that uses this library, or KEY has
       permits, readers or a writer (run --of, --shared, --exclusive)
  123  the store could not be used
  124  the same holder still has the lock
  125  wrong usage
  130  interrupted`

type askFlags struct {
	storeFlags
	wait time.Duration
}

func askCommand() *cobra.Command {
	f := askFlags{}
	c := &cobra.Command{
		Use:                   "ask KEY",
		Short:                 "Ask the holder of a lock to give it back",
		Long:                  askLong,
		Example:               "  locker ask --url setnx+redis://localhost:6379 --wait 1m deploy",
		DisableFlagsInUseLine: true,
		Args:                  oneKey,
		RunE:                  func(c *cobra.Command, args []string) error { return f.ask(c, args[0]) },
	}
	f.add(c)
	c.Flags().DurationVar(&f.wait, "wait", 30*time.Second, "how long the holder has; 0 asks once and does not wait")
	return c
}

func (f *askFlags) ask(c *cobra.Command, key string) error {
	if f.wait < 0 || f.wait > locker.MaxDuration {
		return &exit{exitUsage, fmt.Errorf("--wait=%v: 0s to %v", f.wait, locker.MaxDuration)}
	}
	a, release, err := f.admin(c)
	if err != nil {
		return err
	}
	defer release()
	ctx, stop := untilInterrupt(c)
	defer stop()
	end, asked, first := time.Now().Add(f.wait), time.Time{}, ""
	for {
		h, err := a.Inspect(ctx, key)
		switch {
		case err != nil:
			return f.failed(err)
		case !h.Held:
			fmt.Fprintf(c.OutOrStdout(), "%q is free\n", key)
			return nil
		case first != "" && h.ID != first:
			fmt.Fprintf(c.OutOrStdout(), "%q was given back; now %s has it\n", key, whom(h))
			return nil
		case !asked.IsZero() && !time.Now().Before(end):
			return &exit{exitNotAcquired, fmt.Errorf("%q is still held by %s, which does not listen for requests, or has not given it back yet", key, whom(h))}
		}
		if first = h.ID; time.Since(asked) >= askEvery {
			asked = time.Now()
			switch err := a.RequestRelease(ctx, key); {
			case errors.Is(err, locker.ErrNotHeld):
				continue // it has become free
			case err != nil:
				return f.failed(err)
			}
		}
		if f.wait == 0 {
			fmt.Fprintf(c.OutOrStdout(), "%q is held by %s, which was asked\n", key, whom(h))
			return nil
		}
		select {
		case <-time.After(lookEvery):
		case <-ctx.Done():
			return &exit{code: exitInterrupted}
		}
	}
}

// failed returns the command's error for an error of the library.
func (f *askFlags) failed(err error) error {
	switch {
	case errors.Is(err, locker.ErrConflict):
		return &exit{exitNone, err}
	case errors.Is(err, errors.ErrUnsupported):
		return &exit{exitNone, fmt.Errorf("%s: the holders of locks in this store cannot be asked", f.from)}
	}
	return f.storeError(err)
}

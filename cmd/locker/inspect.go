package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/distlock/locker"
	"github.com/spf13/cobra"
)

const inspectLong = `Shows who holds the lock KEY, or each lock whose key matches PATTERN: * is any characters,
? is one, [abc] is one of these, \ makes the next one plain. Without either it shows every
lock of this library and of Redisson. A pattern looks at every key of the database by SCAN, which
holds up no other command, and asks for 64 keys at a time.

With --all a pattern also shows keys that are no locks of this library or Redisson. A string
with a TTL is "foreign": it may be another library's lock, or a cache. Other strings and
hashes are "data": no lock can be taken at their keys. A KEY is shown whatever it holds.
Values are hidden unless --values is given.

With --watch it prints a line for each change, until Ctrl-C: held (a lock at the beginning),
watching (their number), granted, released, lost (the lock was not renewed in time), gone
(the lock ended, and nobody knows how), waiting (the number of waiting processes changed),
away (the store does not answer), back (it answers again), and foreign, data and free (the
state that a key has now). It asks the store every --every, and does not see a lock that
comes and goes in between. A lock that was taken by force
counts as released.

--json prints one object per line. "time" is when the store was asked. "state" is held,
foreign, data, free or unknown. "held" is true, false or, if the state is unknown, null; then
"error" says why. With --watch, "event" is the event. The object describes the holder of the
event; "held" and "state" are those after the event. The events "back" and "watching" have no
"key"; there "held" says whether there is any lock. A text that is not UTF-8 is an object:
{"base64": "..."}.

` + storeHelp + `
Its strategy does not matter here: the others' locks are recognised, too. Only for
locks of redlock give a URL of redlock, which names their nodes.

Exit codes: 0 a lock is held, 1 none is, 123 the store could not be used, 125 wrong usage, or the
output could not be written, 130 interrupted.`

// exitNone: there is no such lock.
const exitNone = 1

type inspectFlags struct {
	storeFlags
	exact, json, watch, values, all bool
	every                           time.Duration
}

func inspectCommand() *cobra.Command {
	f := inspectFlags{}
	c := &cobra.Command{
		Use:                   "inspect [flags] [KEY|PATTERN]",
		Short:                 "Show who holds which lock",
		Long:                  inspectLong,
		Example:               "  locker inspect --url setnx+redis://localhost:6379\n  locker inspect --watch deploy\n  locker inspect --json 'backup:*'",
		DisableFlagsInUseLine: true,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			return oneKey(c, args)
		},
		RunE: func(c *cobra.Command, args []string) error { return f.inspect(c, args) },
	}
	f.add(c)
	c.Flags().BoolVar(&f.exact, "exact", false, "the argument is a KEY, whatever characters it has")
	c.Flags().BoolVar(&f.json, "json", false, "print a JSON object per line for each lock")
	c.Flags().BoolVarP(&f.all, "all", "a", false, "with a PATTERN: also show keys that are no locks")
	c.Flags().BoolVar(&f.values, "values", false, "show the values of other programs' keys")
	c.Flags().BoolVarP(&f.watch, "watch", "w", false, "print what changes, until Ctrl-C")
	c.Flags().DurationVar(&f.every, "every", time.Second, "how often to look with --watch")
	return c
}

// isPattern reports whether the argument is one.
func (f *inspectFlags) isPattern(args []string) bool {
	return len(args) > 0 && !f.exact && strings.ContainsAny(args[0], `*?[\`)
}

func (f *inspectFlags) check(c *cobra.Command, args []string) error {
	if f.every <= 0 {
		return &exit{exitUsage, fmt.Errorf("--every=%v is not positive; see %s --help", f.every, c.CommandPath())}
	}
	if f.isPattern(args) && !sound.MatchString(args[0]) {
		return &exit{exitUsage, fmt.Errorf(`the pattern %q matches nothing: it has a [ without its ], an empty [] or a \ at its end; --exact takes it as a KEY`, args[0])}
	}
	return nil
}

// sound are patterns whose sets have an end and something in them, and whose escapes escape
// something.
var sound = regexp.MustCompile(`(?s)^(?:[^\\\[]|\\.|\[(?:[^\\\]]|\\.)+\])*$`)

func (f *inspectFlags) inspect(c *cobra.Command, args []string) error {
	if err := f.check(c, args); err != nil {
		return err
	}
	a, release, err := f.admin(c)
	if err != nil {
		return err
	}
	defer release()
	ctx, stop := untilInterrupt(c)
	defer stop()
	if f.watch {
		return f.watchLocks(ctx, c, a, args)
	}
	v := f.view(ctx, a, args)
	switch {
	case ctx.Err() != nil: // some of it may be missing
		return &exit{code: exitInterrupted}
	case v.err != nil:
		return f.storeError(v.err)
	}
	if err := f.print(ctx, c.OutOrStdout(), v); err != nil {
		return err
	}
	in := func(state string) bool {
		return slices.ContainsFunc(v.rows, func(r row) bool { return r.state == state })
	}
	switch {
	case in(stateHeld), in(stateForeign):
		return nil
	case in(stateUnknown):
		return &exit{exitUnavailable, errors.New("the store did not show every lock")}
	}
	return &exit{code: exitNone}
}

// view is the result of one look.
type view struct {
	at   time.Time // when the store was asked
	done time.Time // when it had answered
	key  string    // that was asked for, if it was one
	err  error     // it could not be asked
	rows []row
}

// held returns the number of locks that are held.
func (v view) held() (n int) {
	for _, r := range v.rows {
		if r.state == stateHeld {
			n++
		}
	}
	return n
}

// trouble is why something is unknown; "" if nothing is.
func (f *inspectFlags) trouble(v view) string {
	if v.err != nil {
		return f.explained(v.err)
	}
	for _, r := range v.rows {
		if r.state == stateUnknown {
			return r.why
		}
	}
	return ""
}

// The states of a key.
const (
	stateHeld    = "held"    // a lock of a library that is known
	stateForeign = "foreign" // a string that has a TTL: another library's lock, or a cache
	stateData    = "data"    // no lock, but none can be taken there
	stateFree    = "free"
	stateUnknown = "unknown" // the store could not be asked
)

type row struct {
	locker.Holder
	state  string
	why    string          // of stateUnknown, and of data by its type
	claims []locker.Holder // those who have permits of the key
}

// stateOf returns the state of a Holder that the store has shown.
func stateOf(h locker.Holder) string {
	switch {
	case !h.Held:
		return stateFree
	case h.Strategy != "":
		return stateHeld
	case h.ID != "" && h.Remaining >= 0: // a string; a lock without an end looks like data
		return stateForeign
	}
	return stateData
}

// view asks the store: for a row about a key, held or not; for a pattern those of the locks.
func (f *inspectFlags) view(ctx context.Context, a *locker.Client, args []string) view {
	v := view{at: time.Now()}
	if len(args) > 0 && !f.isPattern(args) {
		v.key = args[0]
		h, err := a.Inspect(ctx, v.key)
		switch {
		case errors.Is(err, locker.ErrConflict):
			_, kind, _ := strings.Cut(err.Error(), locker.ErrConflict.Error()+": ")
			v.rows = []row{{Holder: locker.Holder{Key: v.key}, state: stateData, why: kind}}
		case err != nil:
			v.err = err
		default:
			v.rows = []row{f.row(ctx, a, h)}
		}
		return v
	}
	pattern := "*"
	if len(args) > 0 {
		pattern = args[0]
	}
	for h, err := range a.Holders(ctx, pattern) {
		switch state := stateOf(h); {
		case err != nil && h.Key == "":
			v.rows, v.err = nil, err
			return v
		case err != nil:
			v.rows = append(v.rows, row{Holder: h, state: stateUnknown, why: f.explained(err)})
		case state == stateHeld, f.all:
			if r := f.row(ctx, a, h); r.state != stateFree {
				v.rows = append(v.rows, r)
			}
		}
	}
	slices.SortFunc(v.rows, func(a, b row) int { return strings.Compare(a.Key, b.Key) })
	v.rows = slices.CompactFunc(v.rows, func(a, b row) bool { return a.Key == b.Key }) // SCAN may return a key twice
	return v
}

// row makes the row of a Holder, with those who have permits of its key.
func (f *inspectFlags) row(ctx context.Context, a *locker.Client, h locker.Holder) row {
	r := row{Holder: h, state: stateOf(h)}
	if h.Limit == 0 {
		return r
	}
	for claim, err := range a.Permits(ctx, h.Key) {
		switch {
		case errors.Is(err, errors.ErrUnsupported): // by this strategy: how many permits are out is known
			return r
		case err != nil:
			r.state, r.why = stateUnknown, f.explained(err)
			return r
		}
		r.claims = append(r.claims, claim)
	}
	if len(r.claims) == 0 { // they have gone since the store was asked about the key
		return row{Holder: locker.Holder{Key: h.Key, Waiting: h.Waiting, Queue: h.Queue}, state: stateFree}
	}
	slices.SortFunc(r.claims, func(a, b locker.Holder) int { return a.Since.Compare(b.Since) })
	return r
}

func (f *inspectFlags) print(ctx context.Context, w io.Writer, v view) error {
	text := f.table(v.rows, v.at)
	if f.json {
		text = f.inJSON(v)
	}
	return write(ctx, w, text)
}

// write writes text, but not beyond the end of ctx: a pager may read no further.
func write(ctx context.Context, w io.Writer, text string) error {
	written := make(chan error, 1)
	go func() {
		_, err := io.WriteString(w, text)
		written <- err
	}()
	select {
	case err := <-written:
		if err != nil {
			return unwritten(err)
		}
		return nil
	case <-ctx.Done():
		return &exit{code: exitInterrupted}
	}
}

// unwritten returns the command's error for an output that cannot be written: a code that shows neither a lock nor none.
func unwritten(err error) error {
	return &exit{exitUsage, fmt.Errorf("the output could not be written: %w", err)}
}

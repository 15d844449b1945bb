package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/internal/bound"
	"github.com/spf13/cobra"
)

const inspectLong = `Shows who holds the lock KEY, or each lock whose key matches PATTERN: * is any characters,
? is one, [abc] is one of these, \ makes the next one plain. Without either it shows every
lock of this library and of Redisson. With a pattern it also shows as "foreign" each string
that has a TTL: other libraries lock so, and caches look the same. Their values are hidden
unless --values asks for them. A pattern looks at every key of the database by SCAN, which
holds up no other command.

Other data at KEY is shown as "data": it is no lock, but no lock can be taken there.

With --watch, what was seen last is marked as unknown while the store cannot be asked.

--json prints an object a line. "time" is when the store was asked, "state" is held,
foreign, data, free or unknown, and "held" is true, false, or null for unknown, where
"error" says why. With --watch each look prints a line at least: one without "key" if
there is no lock, or if the store could not be asked for PATTERN. The lines of one look
have the same time. What is not UTF-8 is an object: {"base64": "..."}.

` + storeHelp + `
Its strategy does not matter here: the others' locks are recognised, too. Only redlock's
are looked for on their nodes by redlock.

Exit codes: 0 a lock is held, 1 none is, 123 the store could not be used, 125 wrong usage.`

// exitNone: there is no such lock.
const exitNone = 1

type inspectFlags struct {
	storeFlags
	exact, json, watch, values bool
	every                      time.Duration
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
	c.Flags().BoolVar(&f.json, "json", false, "a JSON object for each lock, a line each")
	c.Flags().BoolVar(&f.values, "values", false, "show the values of other programs' keys")
	c.Flags().BoolVarP(&f.watch, "watch", "w", false, "look again and again, until Ctrl-C")
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
	ctx, stop := signal.NotifyContext(c.Context(), os.Interrupt)
	defer stop()
	a, release, err := f.admin(c)
	if err != nil {
		return err
	}
	defer release()
	if f.watch {
		return f.look(ctx, c, a, args)
	}
	v := f.view(ctx, a, args)
	switch {
	case v.err != nil:
		return f.storeError(v.err)
	case f.print(c.OutOrStdout(), v) != nil:
		return &exit{code: exitNone}
	}
	in := func(state string) bool {
		return slices.ContainsFunc(v.rows, func(r row) bool { return r.state == state })
	}
	switch {
	case in(stateHeld), in(stateForeign):
		return nil
	case in(stateUnknown):
		return &exit{exitUnavailable, errors.New("the store did not tell of each lock")}
	}
	return &exit{code: exitNone}
}

// look looks again and again.
func (f *inspectFlags) look(ctx context.Context, c *cobra.Command, a *locker.Client, args []string) error {
	var last view
	for {
		v := f.view(ctx, a, args)
		if ctx.Err() != nil {
			return &exit{code: exitInterrupted}
		}
		if why := f.trouble(v); why != "" && f.trouble(last) == "" && !isTerminal(c.OutOrStdout()) { // where it stays on the screen
			fmt.Fprintf(c.ErrOrStderr(), "locker: %s\n", why)
		}
		if v.err != nil {
			v.rows, v.seen = last.rows, last.seen
		}
		if f.print(c.OutOrStdout(), v) != nil {
			return &exit{code: exitNone}
		}
		last = v
		if !bound.Sleep(ctx, nil, f.every) {
			return &exit{code: exitInterrupted}
		}
	}
}

// view is the result of one look.
type view struct {
	at   time.Time // when the store was asked
	key  string    // that was asked for, if it was one
	err  error     // it could not be asked
	rows []row     // as they were at the time seen
	seen time.Time // zero: never
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
	state string
	why   string // of stateUnknown, and of data by its type
	stale bool   // it was so, and may be so no more
}

// stateOf reads the state of a Holder that the store has told of.
func stateOf(h locker.Holder) string {
	switch {
	case !h.Held:
		return stateFree
	case h.Strategy != "":
		return stateHeld
	case h.ID != "" && h.Remaining >= 0: // a string; a lock without an end is not told from data
		return stateForeign
	}
	return stateData
}

// view asks the store: for a row about a key, held or not; for a pattern those of the locks.
func (f *inspectFlags) view(ctx context.Context, a *locker.Client, args []string) view {
	v := view{at: time.Now()}
	v.seen = v.at
	if len(args) > 0 && !f.isPattern(args) {
		v.key = args[0]
		h, err := a.Inspect(ctx, v.key)
		switch {
		case errors.Is(err, locker.ErrConflict):
			_, kind, _ := strings.Cut(err.Error(), locker.ErrConflict.Error()+": ")
			v.rows = []row{{locker.Holder{Key: v.key}, stateData, kind, false}}
		case err != nil:
			v.err = err
		default:
			v.rows = []row{{h, stateOf(h), "", false}}
		}
		return v
	}
	var found iter.Seq2[locker.Holder, error]
	if len(args) > 0 {
		found = a.Holders(ctx, args[0])
	} else {
		found = a.Holders(ctx, "*")
	}
	for h, err := range found {
		switch state := stateOf(h); {
		case err != nil && h.Key == "":
			v.rows, v.err = nil, err
			return v
		case err != nil:
			v.rows = append(v.rows, row{h, stateUnknown, f.explained(err), false})
		case state == stateHeld, state == stateForeign && len(args) > 0:
			v.rows = append(v.rows, row{h, state, "", false})
		}
	}
	slices.SortFunc(v.rows, func(a, b row) int { return strings.Compare(a.Key, b.Key) })
	return v
}

// print prints what was seen, in one piece: what is on a terminal is replaced at once.
func (f *inspectFlags) print(w io.Writer, v view) error {
	var text string
	switch {
	case f.json:
		text = f.inJSON(v)
	case f.watch:
		if isTerminal(w) {
			text = "\x1b[H\x1b[2J"
		}
		text += v.at.Format(time.DateTime) + "\n" + f.frame(v)
	default:
		text = f.table(v.rows, v.seen)
	}
	_, err := io.WriteString(w, text)
	return err
}

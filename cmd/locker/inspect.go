package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/distlock/locker"
	"github.com/spf13/cobra"
)

const inspectLong = `Tells who holds the lock KEY, or each lock whose key matches PATTERN: * is any characters,
? is one, [abc] is one of these, \ makes the next one plain. Without either it is every
lock of this library and of Redisson; with a pattern also what other programs have set
that may be a lock. A pattern looks at every key of the database by SCAN, which holds up
no other command.

` + storeHelp + ` Its strategy does not matter here: the others'
locks are recognised, too. Only redlock's are looked for on their nodes by redlock.

Exit codes: 0 a lock is held, 1 none is, 123 the store could not be used, 125 wrong usage.`

// exitNone: there is no such lock.
const exitNone = 1

type inspectFlags struct {
	storeFlags
	exact, json, watch bool
	every              time.Duration
}

func inspectCommand() *cobra.Command {
	f := inspectFlags{}
	c := &cobra.Command{
		Use:                   "inspect [flags] [KEY|PATTERN]",
		Short:                 "Tell who holds which lock",
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
	c.Flags().BoolVarP(&f.watch, "watch", "w", false, "look again and again, until Ctrl-C")
	c.Flags().DurationVar(&f.every, "every", time.Second, "how often to look with --watch")
	return c
}

func (f *inspectFlags) inspect(c *cobra.Command, args []string) error {
	if f.every <= 0 {
		return &exit{exitUsage, fmt.Errorf("--every=%v is not positive; see %s --help", f.every, c.CommandPath())}
	}
	ctx, stop := signal.NotifyContext(c.Context(), os.Interrupt)
	defer stop()
	a, release, err := f.admin(c)
	if err != nil {
		return err
	}
	defer release()
	for {
		holders, err := f.look(ctx, c, a, args)
		switch {
		case err != nil && f.watch && ctx.Err() == nil:
			fmt.Fprintf(c.ErrOrStderr(), "locker: %v (%s)\n", err, f.hint())
		case errors.Is(err, locker.ErrConflict):
			return &exit{exitNone, err}
		case err != nil:
			return f.storeError(err)
		}
		if err := f.print(c.OutOrStdout(), holders); err != nil {
			return &exit{code: exitNone}
		}
		if !f.watch {
			if !slices.ContainsFunc(holders, func(h locker.Holder) bool { return h.Held }) {
				return &exit{code: exitNone}
			}
			return nil
		}
		select {
		case <-time.After(f.every):
		case <-ctx.Done():
			return &exit{code: exitInterrupted}
		}
	}
}

// look is what there is now: one Holder for a key, held or not; for a pattern those that
// are.
func (f *inspectFlags) look(ctx context.Context, c *cobra.Command, a locker.Admin, args []string) (all []locker.Holder, err error) {
	var found iter.Seq2[locker.Holder, error]
	switch {
	case len(args) == 0:
		found = a.Holders(ctx, "*")
	case !f.exact && strings.ContainsAny(args[0], `*?[\`):
		found = a.Holders(ctx, args[0])
	default:
		h, err := a.Inspect(ctx, args[0])
		return []locker.Holder{h}, err
	}
	for h, err := range found {
		if err != nil && h.Key != "" {
			fmt.Fprintf(c.ErrOrStderr(), "locker: %v\n", err)
			continue
		}
		if err != nil {
			return nil, err
		}
		if len(args) > 0 || h.Strategy != "" {
			all = append(all, h)
		}
	}
	slices.SortFunc(all, func(a, b locker.Holder) int { return strings.Compare(a.Key, b.Key) })
	return all, nil
}

func (f *inspectFlags) print(w io.Writer, holders []locker.Holder) error {
	switch {
	case f.json:
		for _, h := range holders {
			var line bytes.Buffer
			e := json.NewEncoder(&line)
			e.SetEscapeHTML(false)
			if err := e.Encode(inJSON(h)); err != nil {
				return err
			}
			if _, err := io.WriteString(w, escaped(line.String())); err != nil {
				return err
			}
		}
		return nil
	case f.watch:
		if isTerminal(w) {
			fmt.Fprint(w, "\x1b[H\x1b[2J")
		}
		fmt.Fprintln(w, time.Now().Format(time.DateTime))
	}
	_, err := io.WriteString(w, table(holders, time.Now()))
	return err
}

// table has a line for each lock, and those who wait in turn below it.
func table(holders []locker.Holder, now time.Time) string {
	if len(holders) == 0 {
		return "no lock is held\n"
	}
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "KEY\tHELD AS\tHOLDER\tSINCE\tENDS IN\tHOLDS\tTOKEN\tWAITING")
	for _, h := range holders {
		if !h.Held {
			fmt.Fprintf(w, "%s\tfree\t\t\t\t\t\t%s\n", shown(h.Key), orDash(h.Waiting))
			continue
		}
		as, since, ends := h.Strategy, "-", "never"
		if as == "" {
			as = "unknown"
		}
		if !h.Since.IsZero() {
			since = max(0, now.Sub(h.Since)).Round(time.Second).String() + " ago"
		}
		if h.Remaining >= 0 {
			ends = h.Remaining.Round(100 * time.Millisecond).String()
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", shown(h.Key), as, whom(h.Owner, h.Metadata), since, ends, orDash(h.Holds), orDash(int(h.Token)), orDash(h.Waiting))
		for i, id := range h.Queue {
			fmt.Fprintf(w, "\t\t%d. %s\t\t\t\t\t\n", i+1, whom(id, locker.MetadataOf(id)))
		}
	}
	_ = w.Flush()
	lines := strings.Split(b.String(), "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	return strings.Join(lines, "\n")
}

func orDash(n int) string {
	if n == 0 {
		return "-"
	}
	return strconv.Itoa(n)
}

// whom is a holder for people: what is known of the process before its id.
func whom(owner string, metadata map[string]string) string {
	if owner == "" {
		return "another program"
	}
	id := owner
	if locker.MetadataOf(owner) != nil {
		id, _, _ = strings.Cut(owner, "?")
	}
	if len(metadata) == 0 {
		return shown(id)
	}
	var all []string
	for name, value := range metadata {
		all = append(all, shown(name)+"="+shown(value))
	}
	slices.Sort(all)
	return strings.Join(all, " ") + " (" + shown(id) + ")"
}

// shown keeps what others have written from changing the screen.
func shown(s string) string {
	if q := strconv.Quote(s); len(s) > 100 || q != `"`+s+`"` || s == "" || strings.Contains(s, " ") {
		if len(s) > 100 {
			return strconv.Quote(s[:100]) + "..."
		}
		return q
	}
	return s
}

// escaped is JSON without the control characters that it allows, which change a screen, too.
func escaped(json string) string {
	var b strings.Builder
	for _, r := range json {
		if r >= 0x7f && r < 0xa0 {
			fmt.Fprintf(&b, "\\u%04x", r)
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

// holderJSON is what --json prints.
type holderJSON struct {
	Key         string            `json:"key"`
	Held        bool              `json:"held"`
	Strategy    string            `json:"strategy,omitempty"`
	Owner       string            `json:"owner,omitempty"`
	ID          string            `json:"id,omitempty"`
	Metadata    map[string]string `json:"metadata,omitempty"`
	Since       *time.Time        `json:"since,omitempty"`
	RemainingMS *int64            `json:"remaining_ms,omitempty"` // left out: endless, or free
	Holds       int               `json:"holds,omitempty"`
	Token       int64             `json:"token,omitempty"`
	Waiting     int               `json:"waiting"`
	Queue       []string          `json:"queue,omitempty"`
}

func inJSON(h locker.Holder) holderJSON {
	j := holderJSON{Key: h.Key, Held: h.Held, Strategy: h.Strategy, Owner: h.Owner, ID: h.ID, Metadata: h.Metadata,
		Holds: h.Holds, Token: h.Token, Waiting: h.Waiting, Queue: h.Queue}
	if !h.Since.IsZero() {
		j.Since = &h.Since
	}
	if ms := h.Remaining.Milliseconds(); h.Held && h.Remaining >= 0 {
		j.RemainingMS = &ms
	}
	return j
}

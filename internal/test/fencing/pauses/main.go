//go:build unix

// Pauses counts what becomes of late writers. Each of many processes takes a lock, asks whether it
// still has it, and is stopped by SIGSTOP. Meanwhile its lease ends, and another owner gets the
// lock and writes. Then the first one goes on, and writes what it was about to write: to
// PostgreSQL, MariaDB, Redis and an HTTP service, with a check of the fencing token and without.
//
//	go run ./pauses -n 1000
//
// It exits with 0 if each late write was refused where tokens are checked, and has overwritten
// the later owner's where they are not.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/distlock/locker/internal/child"
)

const (
	exitFailed = 1
	exitUsage  = 2
)

func main() {
	child.Serve(writerKind, write)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("pauses", flag.ContinueOnError)
	flags.SetOutput(stderr)
	n := flags.Int("n", 1000, "pauses in all")
	writers := flags.Int("writers", 20, "processes that are paused, at the same time")
	page := flags.String("docs", "", "a page to write the table into, between the marks of make pauses")
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		return 0
	} else if err != nil {
		return exitUsage
	}
	if *n < 1 || *writers < 1 || flags.NArg() > 0 {
		fmt.Fprintln(stderr, "pauses: want -n and -writers of 1 or more, and no arguments")
		return exitUsage
	}
	began := time.Now()
	counts, err := count(ctx, *n, min(*writers, *n))
	if err != nil {
		fmt.Fprintln(stderr, "pauses:", err)
		return exitFailed
	}
	fmt.Fprintf(stdout, "%d pauses of %d processes, in %.0f s\n\n", *n, min(*writers, *n), time.Since(began).Seconds())
	w := tabwriter.NewWriter(stdout, 0, 0, 2, ' ', 0)
	counts.table(w, "\t")
	if err := w.Flush(); err != nil {
		return exitFailed
	}
	if *page != "" {
		err = counts.into(*page, *n, time.Now())
	}
	if err := errors.Join(err, counts.verdict(*n)); err != nil {
		fmt.Fprintln(stderr, "pauses:", err)
		return exitFailed
	}
	return 0
}

// counts are the late writes of a resource that were refused, and those that overwrote.
type counts struct {
	mu             sync.Mutex
	refused, wrote map[string]int
}

func (c *counts) add(resource string, refused bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if refused {
		c.refused[resource]++
	} else {
		c.wrote[resource]++
	}
}

func (c *counts) table(w io.Writer, tab string) {
	line := func(cells ...any) {
		for i, cell := range cells {
			if i > 0 {
				fmt.Fprint(w, tab)
			}
			fmt.Fprint(w, cell)
		}
		fmt.Fprintln(w)
	}
	line("RESOURCE", "TOKEN", "LATE WRITES", "REFUSED", "OVERWROTE")
	for _, store := range stores {
		for _, checks := range []bool{true, false} {
			name, token := resourceName(store, checks), "checked"
			if !checks {
				token = "not checked"
			}
			line(store, token, c.refused[name]+c.wrote[name], c.refused[name], c.wrote[name])
		}
	}
}

// verdict returns an error unless it went as it should.
func (c *counts) verdict(n int) error {
	for _, store := range stores {
		if with, without := resourceName(store, true), resourceName(store, false); c.refused[with] != n || c.wrote[without] != n {
			return fmt.Errorf("%s: of %d late writes %d were refused with a check, and %d without", store, n, c.refused[with], c.refused[without])
		}
	}
	return nil
}

const (
	beginMark = "<!-- by make pauses -->\n"
	endMark   = "<!-- end -->"
)

// into writes the table into a page in Markdown.
func (c *counts) into(page string, n int, now time.Time) error {
	text, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	before, rest, found := bytes.Cut(text, []byte(beginMark))
	_, after, ended := bytes.Cut(rest, []byte(endMark))
	if !found || !ended {
		return fmt.Errorf("%s has no %q with %q after it", page, beginMark, endMark)
	}
	var b bytes.Buffer
	b.Write(before)
	fmt.Fprintf(&b, "%s%d pauses, %s:\n\n| resource | late writes | refused with a check | refused without |\n|---|---|---|---|\n",
		beginMark, n, now.Format(time.DateOnly))
	for _, store := range stores {
		with, without := resourceName(store, true), resourceName(store, false)
		fmt.Fprintf(&b, "| %s | %d | %d | %d |\n", store, n, c.refused[with], c.refused[without])
	}
	b.WriteString(endMark)
	b.Write(after)
	return os.WriteFile(page, b.Bytes(), 0o644)
}

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/distlock/locker/cmd/locker/internal/compare"
	"github.com/spf13/cobra"
	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"
)

const compareLong = `Runs the conformance suite and some benchmarks on the strategies, and reports what each
guarantees, what it does under faults, what it costs, and which of them these numbers
speak for.

Without --url and --nodes it starts redis-servers of its own, and kills and freezes them as
the suite wants (without an installed redis-server: an embedded one, which is not killed).

On a server of yours it sets, reads and deletes keys that contain locker-compare:<random>,
and lists locker:inbox:*, which end by themselves; it looks for its own keys by SCAN, reads
INFO, and puts load on the server for a minute or two. It flushes, configures, kills and
stops nothing. --yes does without the question.

Exit codes: 0 all cases passed, 1 some did not, or the answer was no, 123 the store could
not be used, 125 wrong usage.`

type compareFlags struct {
	url, need, report string
	nodes, strategies []string
	quick, yes        bool
	json, markdown    bool
}

func compareCommand() *cobra.Command {
	f := compareFlags{}
	c := &cobra.Command{
		Use:                   "compare [flags]",
		Short:                 "Compare the strategies, by the conformance suite and benchmarks",
		Long:                  compareLong,
		Example:               "  locker compare --quick\n  locker compare --url redis://localhost:6379 --need order --report locks.html",
		DisableFlagsInUseLine: true,
		Args:                  cobra.NoArgs,
		RunE:                  func(c *cobra.Command, _ []string) error { return f.compare(c) },
	}
	flags := c.Flags()
	flags.StringVar(&f.url, "url", "", "URL of a server to compare on: redis://, rediss:// or unix://")
	flags.StringSliceVar(&f.nodes, "nodes", nil, "URLs of three servers or more, for redlock")
	flags.StringSliceVar(&f.strategies, "strategies", nil, "which: "+strings.Join(compare.Names(), ",")+" (default all that the servers allow)")
	flags.BoolVar(&f.quick, "quick", false, "without the cases that take long, and with shorter benchmarks")
	flags.StringVar(&f.need, "need", "", "what to advise on: "+strings.Join(needs(), ", ")+" (default all)")
	flags.StringVar(&f.report, "report", "locker-report.html", "`file` for the HTML report; - for none")
	flags.BoolVar(&f.json, "json", false, "print JSON instead of tables")
	flags.BoolVar(&f.markdown, "markdown", false, "print Markdown instead of tables")
	flags.BoolVarP(&f.yes, "yes", "y", false, "do not ask before a server of yours is used")
	complete := func(name string, values []string) {
		_ = c.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	}
	complete("strategies", compare.Names())
	complete("need", needs())
	_ = c.MarkFlagFilename("report", "html")
	return c
}

func needs() (all []string) {
	for _, need := range compare.Needs {
		all = append(all, string(need))
	}
	return all
}

func (f *compareFlags) check(c *cobra.Command) error {
	if f.json && f.markdown {
		return fmt.Errorf("--json and --markdown: one of them; see %s --help", c.CommandPath())
	}
	for _, name := range f.strategies {
		if !slices.Contains(compare.Names(), name) {
			return fmt.Errorf("--strategies=%s: there are %s", name, strings.Join(compare.Names(), ", "))
		}
	}
	if c.Flags().Changed("strategies") && len(f.strategies) == 0 {
		return errors.New("--strategies is empty: leave it out for all")
	}
	if n := len(f.nodes); n > 0 && (n < 3 || n%2 == 0) {
		return fmt.Errorf("--nodes names %d servers: redlock needs an odd number, three at least", n)
	}
	if f.need != "" && !slices.Contains(compare.Needs, compare.Need(f.need)) {
		return fmt.Errorf("--need=%s: there are %s", f.need, strings.Join(needs(), ", "))
	}
	if f.url == "" && len(f.nodes) == 0 || f.yes {
		return nil
	}
	if !isTerminal(c.InOrStdin()) {
		return errors.New("a server of yours would be used, and there is no terminal to ask on; use --yes to go on without a question")
	}
	fmt.Fprintf(c.ErrOrStderr(), "%s\n\nGo on? [y/N] ", compareLong[strings.Index(compareLong, "On a server of yours"):strings.Index(compareLong, " --yes")])
	if said := readLine(c); said != "y" && said != "yes" {
		return &exit{exitNone, errors.New("nothing was done")}
	}
	return nil
}

func (f *compareFlags) compare(c *cobra.Command) error {
	if err := f.check(c); err != nil {
		return err
	}
	page, err := newPage(f.report) // before a minute has gone by
	if err != nil {
		return err
	}
	defer page.discard()
	ctx, stop := signal.NotifyContext(c.Context(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	show := newProgress(c.ErrOrStderr())
	result, err := compare.Run(ctx, compare.Options{
		Strategies: f.strategies, URL: f.url, Nodes: f.nodes, Quick: f.quick, Need: compare.Need(f.need),
		Begin: show.begin, Suite: show.suite,
	})
	show.end()
	var left *compare.LeftError
	switch {
	case errors.As(err, &left) && result == nil:
		return &exit{exitUnavailable, err}
	case errors.Is(err, context.Canceled):
		return &exit{exitInterrupted, errors.New("interrupted; nothing is left on the servers")}
	case errors.Is(err, compare.ErrUsage):
		return &exit{exitUsage, err}
	case err != nil && result == nil:
		store := storeFlags{tls: slices.ContainsFunc(append(f.nodes, f.url), speaksTLS)}
		if hint := store.hint(err); hint != "" {
			err = fmt.Errorf("%w (%s)", err, hint)
		}
		return &exit{exitUnavailable, err}
	}
	if err := page.write(result); err != nil {
		return err
	}
	if err := f.print(c.OutOrStdout(), result); err != nil {
		return err
	}
	if page != nil {
		fmt.Fprintf(c.ErrOrStderr(), "The report is in %s.\n", f.report)
	}
	if err != nil { // of the end
		return &exit{exitUnavailable, err}
	}
	if result.Failed() {
		return &exit{code: exitNone}
	}
	return nil
}

// page is the file of the report. A file that was there stays until there is another.
type page struct {
	name string
	tmp  *os.File // beside it; nil where it is no regular file
}

func newPage(name string) (*page, error) {
	if name == "-" {
		return nil, nil
	}
	p := &page{name: name}
	if info, err := os.Stat(name); err == nil && !info.Mode().IsRegular() {
		f, err := os.OpenFile(name, os.O_WRONLY, 0)
		if err != nil {
			return nil, err
		}
		return p, f.Close()
	}
	var err error
	p.tmp, err = os.CreateTemp(filepath.Dir(name), ".locker-report-*")
	return p, err
}

func (p *page) write(r *compare.Result) error {
	if p == nil {
		return nil
	}
	if p.tmp == nil {
		f, err := os.OpenFile(p.name, os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		return errors.Join(r.HTML(f), f.Close())
	}
	if err := errors.Join(r.HTML(p.tmp), p.tmp.Chmod(0o644), p.tmp.Close()); err != nil {
		return err
	}
	return os.Rename(p.tmp.Name(), p.name)
}

// discard removes what was not written to the end.
func (p *page) discard() {
	if p != nil && p.tmp != nil {
		_ = p.tmp.Close()
		_ = os.Remove(p.tmp.Name())
	}
}

func (f *compareFlags) print(w io.Writer, r *compare.Result) (err error) {
	switch {
	case f.json:
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		return e.Encode(r)
	case f.markdown:
		_, err = io.WriteString(w, r.Markdown())
	default:
		_, err = io.WriteString(w, r.Text())
	}
	return err
}

// progress shows how far the comparison is: by bars on a terminal, else by lines.
type progress struct {
	w     io.Writer
	bars  *mpb.Progress // nil: lines
	mu    sync.Mutex
	suits map[string]*mpb.Bar
}

func newProgress(w io.Writer) *progress {
	p := &progress{w: w, suits: make(map[string]*mpb.Bar)}
	if isTerminal(w) {
		p.bars = mpb.New(mpb.WithOutput(w), mpb.WithWidth(40), mpb.WithRefreshRate(100*time.Millisecond))
	}
	return p
}

func (p *progress) begin(what string) {
	if p.bars != nil {
		_, _ = fmt.Fprintf(p.bars, "%s\n", what)
		return
	}
	fmt.Fprintln(p.w, "locker:", what)
}

// suite shows how many cases of a strategy are done.
func (p *progress) suite(strategy string, done, of int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.bars == nil {
		if done == of {
			fmt.Fprintf(p.w, "locker: %s: %d cases are through\n", strategy, done)
		}
		return
	}
	bar := p.suits[strategy]
	if bar == nil {
		bar = p.bars.AddBar(int64(of),
			mpb.PrependDecorators(decor.Name(fmt.Sprintf("%-14s", strategy))),
			mpb.AppendDecorators(decor.CountersNoUnit("%d of %d cases")))
		p.suits[strategy] = bar
	}
	bar.SetTotal(int64(of), false)
	bar.SetCurrent(int64(done))
	if done == of {
		bar.SetTotal(int64(of), true)
	}
}

func (p *progress) end() {
	if p.bars == nil {
		return
	}
	for _, b := range p.suits {
		b.Abort(false)
	}
	p.bars.Wait()
}

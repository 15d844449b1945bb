package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/distlock/locker/cmd/locker/internal/compare"
	"github.com/distlock/locker/strategy"
	"github.com/spf13/cobra"
)

// compareOnYours is a part of compareLong, and of the question before a server of the user's is used.
const compareOnYours = `On a Redis of yours it sets, reads and deletes keys that contain locker-compare:<random>.
It also makes lists at the keys locker:inbox:*, which expire. It finds its own keys by SCAN,
and reads INFO. It puts load on the server for a minute or two. In a SQL database it makes
the library's table if there is none. Later locks delete its rows, ten minutes after it has
ended. It flushes, configures, kills and stops nothing.`

const compareLong = `Runs benchmarks and the conformance suite on the strategies, and reports what each
promises, what it does under faults, what it costs here, and which of them meet a need.

Without --url and --nodes it starts servers of its own: redis-server, PostgreSQL, MariaDB and
etcd, as far as they are installed. If redis-server is missing, it uses an embedded server.
It freezes and kills these servers, to see when a holder learns of its loss. --url names a
store of yours: postgres://, mysql://, etcd:// or setnx+redis:// for one strategy, redis://
for all strategies that work on a single Redis. --url may be given several times. A strategy
that is given twice is compared with itself. The suite runs for the strategies of a redis://
URL and of --nodes; a store whose URL names a strategy has the benchmarks only.

Every benchmark has --runs runs; the strategies take turns. What takes seconds, the figures of
a held lock and of a process that waits, has three runs at most, and ranks nothing. A figure is the median of the
runs, with the least and the greatest run. A strategy is called better only from 30 runs
on, and only if the Mann-Whitney test finds (p < 0.001) that it is better by more than a
fifth. Otherwise the report says "no difference": smaller differences change from one run
of this command to the next. The contenders for a key are processes, not goroutines. A
change is a grant to another process than the grant before. If a contended run has too few
changes, it is longer, up to four times. If there are still too few, the report says so.

` + compareOnYours + ` It asks before it
begins, unless --yes is given.

--against compares each metric with the JSON that an earlier run with --json has printed. The
longest wait and the shares are compared only if the contended runs were equally long.

After Ctrl-C it deletes its keys from a Redis of yours; a second Ctrl-C ends this, too.

Exit codes: 0 all cases passed; 1 a case failed, or a metric is worse than in --against by
more than --threshold, or the answer to the question was no; 123 the store could not be
used; 125 wrong usage; 130 interrupted.`

type compareFlags struct {
	need, report            string
	against, threshold      string
	urls, nodes, strategies []string
	quick, noSuite, yes     bool
	json, markdown          bool
	runs                    int
	time                    time.Duration
	seed                    uint64
}

func compareCommand() *cobra.Command {
	f := compareFlags{}
	c := &cobra.Command{
		Use:                   "compare [flags]",
		Short:                 "Compare the strategies, by the conformance suite and benchmarks",
		Long:                  compareLong,
		Example:               "  locker compare --quick\n  locker compare --url redis://localhost:6379 --need order --report locks.html\n  locker compare --url blpop+redis://localhost --url postgres://app@localhost/app --no-suite --markdown",
		DisableFlagsInUseLine: true,
		Args:                  cobra.NoArgs,
		RunE:                  func(c *cobra.Command, _ []string) error { return f.compare(c) },
	}
	flags := c.Flags()
	flags.StringArrayVar(&f.urls, "url", nil, "URL of a store to compare on; may be given several times")
	flags.IntVar(&f.runs, "runs", 60, "how many runs each benchmark has, 1 to 1000")
	flags.DurationVar(&f.time, "time", 100*time.Millisecond, "how long a run is, 1ms to 1m; runs with contending processes are twice as long")
	flags.Uint64Var(&f.seed, "seed", 0, "seed of the order of the runs; 0 draws a seed")
	flags.StringVar(&f.against, "against", "", "`file` with the JSON of an earlier comparison, to compare with")
	flags.StringVar(&f.threshold, "threshold", "10%", "with --against: exit with 1 if a metric is worse by more than this and the noise")
	flags.BoolVar(&f.noSuite, "no-suite", false, "benchmarks only, without the conformance suite")
	flags.StringSliceVar(&f.nodes, "nodes", nil, "URLs of three servers or more, for redlock")
	flags.StringSliceVar(&f.strategies, "strategies", nil, "which: "+strings.Join(compare.Names(), ",")+" (default all that the servers allow)")
	flags.BoolVar(&f.quick, "quick", false, "leave out the long cases, and make 5 runs of 50ms unless --runs and --time are given")
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
	_ = c.MarkFlagFilename("against", "json")
	return c
}

func needs() (all []string) {
	for _, need := range compare.Needs {
		all = append(all, string(need))
	}
	return all
}

func (f *compareFlags) check(c *cobra.Command) error {
	if f.runs < 1 || f.runs > 1000 {
		return fmt.Errorf("--runs=%d: 1 to 1000", f.runs)
	}
	if f.time < time.Millisecond || f.time > time.Minute {
		return fmt.Errorf("--time=%v: 1ms to 1m", f.time)
	}
	if _, err := f.share(); err != nil {
		return err
	}
	if f.report == "" {
		return errors.New("--report is empty: - is for none")
	}
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
	if len(f.urls) == 0 && len(f.nodes) == 0 || f.yes {
		return nil
	}
	if !isTerminal(c.InOrStdin()) {
		return errors.New("a server of yours would be used, and there is no terminal to ask on; use --yes to go on without a question")
	}
	fmt.Fprintf(c.ErrOrStderr(), "%s\n\nGo on? [y/N] ", compareOnYours)
	if said := readLine(c); said != "y" && said != "yes" {
		return &exit{exitNone, errors.New("nothing was done")}
	}
	return nil
}

func (f *compareFlags) compare(c *cobra.Command) error {
	if err := f.check(c); err != nil {
		return err
	}
	old, err := f.earlier()
	if err != nil {
		return err
	}
	page, err := newPage(f.report) // before a minute has gone by
	if err != nil {
		return err
	}
	defer page.discard()
	ctx, stop := signal.NotifyContext(c.Context(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	if len(f.urls)+len(f.nodes) > 0 { // a second Ctrl-C ends the clean-up of servers that may be silent
		defer context.AfterFunc(ctx, stop)()
	}
	show := newProgress(c.ErrOrStderr())
	result, err := compare.Run(ctx, f.options(c, show))
	show.end()
	var left *compare.LeftError
	switch {
	case errors.As(err, &left) && result == nil:
		return &exit{exitUnavailable, err}
	case errors.Is(err, context.Canceled):
		return &exit{exitInterrupted, f.interrupted()}
	case errors.Is(err, compare.ErrUsage):
		return &exit{exitUsage, err}
	case err != nil && result == nil:
		return &exit{exitUnavailable, f.hinted(err)}
	}
	if err := errors.Join(page.write(result), f.print(c.OutOrStdout(), result)); err != nil {
		return err
	}
	if page != nil {
		fmt.Fprintf(c.ErrOrStderr(), "The report is in %s.\n", f.report)
	}
	if err != nil { // of the end
		return &exit{exitUnavailable, err}
	}
	worse := false
	if old != nil {
		if worse, err = f.compareWith(c, old, result); err != nil {
			return err
		}
	}
	if f.json { // the other forms have them as sentences
		for _, line := range result.Failures() {
			fmt.Fprintln(c.ErrOrStderr(), line)
		}
	}
	if worse || result.Failed() {
		return &exit{code: exitNone}
	}
	return nil
}

// interrupted returns the error of a comparison that Ctrl-C has ended, after its clean-up. Only keys of Redis are deleted.
func (f *compareFlags) interrupted() error {
	if slices.ContainsFunc(f.urls, func(u string) bool { return storeOf(strategy.Config{URL: u}) != "redis" }) {
		return errors.New("interrupted; nothing is left in Redis, and the locks of the comparison in other stores end by themselves, 30 s later at most")
	}
	return errors.New("interrupted; nothing is left on the servers")
}

// earlier returns the earlier comparison; nil if there is none.
func (f *compareFlags) earlier() ([]byte, error) {
	if f.against == "" {
		return nil, nil
	}
	old, err := os.ReadFile(f.against)
	if err != nil {
		return nil, err
	}
	if err := compare.CheckEarlier(old); err != nil {
		return nil, fmt.Errorf("--against=%s: %w", f.against, err)
	}
	return old, nil
}

// hinted is err with what may help, where it is clear which store it is of.
func (f *compareFlags) hinted(err error) error {
	store := storeFlags{tls: slices.ContainsFunc(slices.Concat(f.nodes, f.urls), speaksTLS)}
	switch len(f.urls) {
	case 0:
	case 1:
		store.store = storeOf(strategy.Config{URL: f.urls[0]})
	default:
		return err
	}
	if hint := store.hint(err); hint != "" {
		return fmt.Errorf("%w (%s)", err, hint)
	}
	return err
}

// share returns the threshold as a share.
func (f *compareFlags) share() (float64, error) {
	percent, err := strconv.ParseFloat(strings.TrimSuffix(f.threshold, "%"), 64)
	if err != nil || math.IsNaN(percent) || percent < 0 || !strings.HasSuffix(f.threshold, "%") {
		return 0, fmt.Errorf("--threshold=%s: a percentage such as 10%%", f.threshold)
	}
	return percent / 100, nil
}

// compareWith prints what has changed since an earlier comparison: on stderr, as stdout has this one.
func (f *compareFlags) compareWith(c *cobra.Command, old []byte, r *compare.Result) (worse bool, err error) {
	threshold, err := f.share()
	if err != nil {
		return false, err
	}
	against, err := r.Against(bytes.NewReader(old), threshold)
	if err != nil {
		return false, fmt.Errorf("--against=%s: %w", f.against, err)
	}
	fmt.Fprint(c.ErrOrStderr(), "\n"+against.Text())
	return against.Worse, nil
}

func (f *compareFlags) options(c *cobra.Command, show *progress) compare.Options {
	o := compare.Options{
		Strategies: f.strategies, URLs: f.urls, Nodes: f.nodes, Quick: f.quick, NoSuite: f.noSuite, Need: compare.Need(f.need),
		Runs: f.runs, Time: f.time, Seed: f.seed, Begin: show.begin, Suite: show.suite,
	}
	if f.quick && !c.Flags().Changed("runs") {
		o.Runs = 5
	}
	if f.quick && !c.Flags().Changed("time") {
		o.Time = 50 * time.Millisecond
	}
	if o.Seed == 0 {
		o.Seed = rand.Uint64()
	}
	return o
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

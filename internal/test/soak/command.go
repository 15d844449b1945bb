package soak

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
)

// Main runs cfg, as the arguments of a command change it, prints what was found, and returns the
// exit status: 1 for violations, 2 for a run that could not go on.
func Main(cfg Config, args []string) int {
	cfg, err := parse(cfg, args)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	var report *Report
	if err == nil {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		if report, err = Run(ctx, cfg); report.Rounds > 0 {
			fmt.Print(report)
			if cfg.Record != "" {
				err = errors.Join(err, report.recordIn(cfg.Record))
			}
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	if len(report.Violations) > 0 {
		fmt.Println("\nlogs are in", report.Dir)
		return 1
	}
	return 0
}

// parse returns cfg with what args change in it.
func parse(cfg Config, args []string) (Config, error) {
	cfg.Progress = progress(os.Stderr)
	strategies := cfg.Strategies
	var names, known []string
	for _, s := range strategies {
		known = append(known, s.Name)
	}
	flags := flag.NewFlagSet("soak", flag.ContinueOnError)
	list := func(name, usage string, set func([]string)) {
		flags.Func(name, usage+", separated by commas (default all)", func(text string) error {
			set(strings.Split(text, ","))
			return nil
		})
	}
	list("strategies", strings.Join(known, ", "), func(l []string) { names = l })
	usable := slices.DeleteFunc(cfg.topologies(), func(t Topology) bool { return len(cfg.strategiesOn(t)) == 0 })
	list("topologies", fmt.Sprint(usable), func(l []string) {
		for _, name := range l {
			cfg.Topologies = append(cfg.Topologies, Topology(name))
		}
	})
	faults := "none, or some of:"
	for _, f := range cfg.faults() {
		if f.happensOn(usable...) {
			faults += fmt.Sprintf("\n  %-16s %s", f.Name, f.Doc)
		}
	}
	list("faults", faults+"\n", func(l []string) {
		cfg.Faults = slices.DeleteFunc(l, func(name string) bool { return name == "none" })
	})
	flags.DurationVar(&cfg.Duration, "duration", 0, "how long (default 1m, or as long as -operations takes)")
	flags.IntVar(&cfg.Operations, "operations", 0, "end after so many")
	flags.Uint64Var(&cfg.Seed, "seed", 0, "of what is tried (default a random one)")
	flags.IntVar(&cfg.Callers, "callers", 0, "of each strategy in a process (default 8)")
	flags.IntVar(&cfg.Keys, "keys", 0, "of each strategy (default 32)")
	flags.DurationVar(&cfg.Slack, "slack", 0, "how late a busy machine may make things (default 2s)")
	flags.StringVar(&cfg.Record, "record", "", "add the run to this file, for docs/verification.md")
	flags.StringVar(&cfg.Dir, "dir", "", "for logs (default a new one for temporary files)")
	if err := flags.Parse(args); err != nil {
		return cfg, err
	}
	if names = append(names, flags.Args()...); names != nil {
		cfg.Strategies = nil
	}
	for _, name := range names {
		i := slices.Index(known, name)
		if i < 0 {
			return cfg, fmt.Errorf("soak: no strategy %q; there are: %v", name, known)
		}
		cfg.Strategies = append(cfg.Strategies, strategies[i])
	}
	return cfg, nil
}

// progress keeps a line up to date if out is a terminal.
func progress(out *os.File) func(string) {
	if info, err := out.Stat(); err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return nil
	}
	return func(line string) { fmt.Fprintf(out, "\r%s\x1b[K", line) }
}

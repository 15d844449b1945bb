// Command soak puts the strategies of this module under faults, for as long as one
// likes, and checks what their users saw; see package soak.
//
//	go run ./internal/soak/cmd/soak -duration=5m -strategies=setnx,redlock
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/internal/soak"
	"github.com/distlock/locker/strategy/blpop"
	"github.com/distlock/locker/strategy/hashreentrant"
	"github.com/distlock/locker/strategy/redlock"
	"github.com/distlock/locker/strategy/setnx"
	"github.com/redis/go-redis/v9"
)

type constructor = func(redis.UniversalClient, ...locker.Option) (locker.Locker, error)

// single is on one Redis, of constructors that take turns over the processes.
func single(news ...constructor) func(soak.Process) (locker.Locker, error) {
	return func(p soak.Process) (locker.Locker, error) {
		return news[p.Index%len(news)](p.Clients[0], p.Options...)
	}
}

var strategies = []soak.Strategy{
	{Name: "setnx", New: single(setnx.New)},
	{Name: "hashreentrant", StoredHolds: true, Notified: true, New: single(hashreentrant.New)},
	{Name: "blpop", StoredHolds: true, Notified: true, Fair: true, New: single(blpop.New)},
	{Name: "redlock", Nodes: 5, Notified: true, New: func(p soak.Process) (locker.Locker, error) { return redlock.New(p.Clients, p.Options...) }},
	{Name: "mixed", Mixed: true, New: single(setnx.New, hashreentrant.New, blpop.New)}, // they exclude one another
}

func main() {
	soak.ServeWorker(strategies...)
	cfg, err := parse(os.Args[1:])
	switch {
	case errors.Is(err, flag.ErrHelp):
		return
	case err != nil:
		fail(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	report, err := soak.Run(ctx, cfg)
	if report.Rounds > 0 {
		fmt.Print(report)
	}
	if len(report.Violations) > 0 {
		fmt.Printf("\nlogs in %s; for one of the rounds again: go run ./internal/soak/cmd/soak with the flags given there\n", report.Dir)
	}
	if err != nil {
		fail(err)
	}
	if len(report.Violations) > 0 {
		os.Exit(1)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(2)
}

func parse(args []string) (soak.Config, error) {
	cfg := soak.Config{Logf: func(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }}
	flags := flag.NewFlagSet("soak", flag.ContinueOnError)
	flags.DurationVar(&cfg.Duration, "duration", time.Minute, "how long")
	flags.Uint64Var(&cfg.Seed, "seed", 0, "of what is tried; 0 for a random one")
	names := flags.String("strategies", "all", "which, separated by commas: "+strategyNames())
	faults := flags.String("faults", "all", "which, separated by commas: all, none or names, with a minus before those to leave out")
	list := flags.Bool("list", false, "list the faults")
	flags.IntVar(&cfg.Processes, "processes", 3, "of each strategy")
	flags.IntVar(&cfg.Callers, "callers", 16, "in each process")
	flags.IntVar(&cfg.Keys, "keys", 64, "of each strategy")
	ttls := flags.String("ttls", "300ms,500ms,1s", "of the leases, separated by commas")
	flags.DurationVar(&cfg.Storm, "storm", 12*time.Second, "how long faults happen at a time")
	flags.DurationVar(&cfg.Calm, "calm", 8*time.Second, "how long none happens then")
	flags.DurationVar(&cfg.Slack, "slack", 2*time.Second, "how late a busy machine may make things")
	flags.StringVar(&cfg.Dir, "dir", "", "for logs (default a new one for temporary files)")
	if err := flags.Parse(args); err != nil {
		return cfg, err
	}
	if *list {
		w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
		for _, f := range soak.Faults() {
			fmt.Fprintf(w, "%s\t%s\n", f.Name, f.Doc)
		}
		_ = w.Flush()
		return cfg, flag.ErrHelp
	}
	if flags.NArg() > 0 {
		return cfg, fmt.Errorf("soak: unknown argument %s", strconv.Quote(flags.Arg(0)))
	}
	var err error
	if cfg.Strategies, err = chooseStrategies(*names); err != nil {
		return cfg, err
	}
	cfg.Faults = chooseFaults(*faults)
	for _, text := range strings.Split(*ttls, ",") {
		d, err := time.ParseDuration(text)
		if err != nil || d < locker.MinTTL {
			return cfg, fmt.Errorf("soak: -ttls: %q is no duration of at least %v", text, locker.MinTTL)
		}
		cfg.TTLs = append(cfg.TTLs, d)
	}
	return cfg, nil
}

func strategyNames() string {
	var names []string
	for _, s := range strategies {
		names = append(names, s.Name)
	}
	return strings.Join(names, ", ")
}

func chooseStrategies(text string) ([]soak.Strategy, error) {
	if text == "all" {
		return strategies, nil
	}
	var chosen []soak.Strategy
	for _, name := range strings.Split(text, ",") {
		i := slices.IndexFunc(strategies, func(s soak.Strategy) bool { return s.Name == name })
		if i < 0 {
			return nil, fmt.Errorf("soak: -strategies: no strategy %q; there are: %s", name, strategyNames())
		}
		chosen = append(chosen, strategies[i])
	}
	return chosen, nil
}

// chooseFaults adds and takes away what the text names; whether there are such
// faults soak.Run knows.
func chooseFaults(text string) []string {
	chosen := []string{}
	for i, name := range strings.Split(text, ",") {
		without, minus := strings.CutPrefix(name, "-")
		if name == "all" || minus && i == 0 {
			for _, f := range soak.Faults() {
				chosen = append(chosen, f.Name)
			}
		}
		switch {
		case minus:
			chosen = slices.DeleteFunc(chosen, func(f string) bool { return f == without })
		case name != "all" && name != "none":
			chosen = append(chosen, name)
		}
	}
	return chosen
}

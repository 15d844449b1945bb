// Command soak puts the strategies of this module under faults, for as long as one
// likes, and checks what their users saw; see package soak.
//
//	go run ./internal/test/soak/cmd/soak -duration=5m -topologies=single,sentinel -strategies=setnx
package main

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
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/internal/test/soak"
	"github.com/distlock/locker/strategy/blpop"
	"github.com/distlock/locker/strategy/hashreentrant"
	"github.com/distlock/locker/strategy/redlock"
	"github.com/distlock/locker/strategy/setnx"
	"github.com/redis/go-redis/v9"
)

type constructor = func(redis.UniversalClient, ...locker.Option) (*locker.Client, error)

// on is a strategy on one client. Constructors take turns over the processes.
func on(name string, news ...constructor) soak.Strategy {
	return soak.Strategy{Name: name, On: []soak.Topology{soak.Single, soak.Sentinel, soak.Cluster}, New: func(p soak.Process) (locker.Locker, error) {
		return news[p.Index%len(news)](p.Clients[0], p.Options...)
	}}
}

// acked is a strategy that waits for the replica.
func acked(name string, newLocker constructor, acks func(int, time.Duration) locker.Option) soak.Strategy {
	const confirmed = 500 * time.Millisecond // by then
	return soak.Strategy{Name: name, On: []soak.Topology{soak.Sentinel, soak.Cluster}, Acked: true, New: func(p soak.Process) (locker.Locker, error) {
		return newLocker(p.Clients[0], append(p.Options, acks(1, confirmed))...)
	}}
}

var strategies = []soak.Strategy{
	on("setnx", setnx.New),
	on("hashreentrant", hashreentrant.New),
	on("blpop", blpop.New),
	on("mixed", setnx.New, hashreentrant.New, blpop.New), // they exclude one another
	acked("setnx+acks", setnx.New, setnx.WithReplicaAcks),
	acked("hashreentrant+acks", hashreentrant.New, hashreentrant.WithReplicaAcks),
	acked("blpop+acks", blpop.New, blpop.WithReplicaAcks),
	{Name: "redlock", On: []soak.Topology{soak.Quorum}, New: func(p soak.Process) (locker.Locker, error) {
		return redlock.New(p.Clients, p.Options...)
	}},
}

func main() {
	soak.ServeWorker(strategies...)
	cfg, err := parse(os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	var report *soak.Report
	if err == nil {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		if report, err = soak.Run(ctx, cfg); report.Rounds > 0 {
			fmt.Print(report)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	if len(report.Violations) > 0 {
		fmt.Println("\nlogs are in", report.Dir)
		os.Exit(1)
	}
}

func parse(args []string) (soak.Config, error) {
	cfg := soak.Config{Progress: progress(os.Stderr)}
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
	list("topologies", fmt.Sprint(soak.Topologies()), func(l []string) {
		for _, name := range l {
			cfg.Topologies = append(cfg.Topologies, soak.Topology(name))
		}
	})
	faults := "none, or some of:"
	for _, f := range soak.Faults() {
		faults += fmt.Sprintf("\n  %-14s %s", f.Name, f.Doc)
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
	flags.StringVar(&cfg.Dir, "dir", "", "for logs (default a new one for temporary files)")
	if err := flags.Parse(args); err != nil {
		return cfg, err
	}
	names = append(names, flags.Args()...)
	for _, name := range names {
		i := slices.Index(known, name)
		if i < 0 {
			return cfg, fmt.Errorf("soak: no strategy %q; there are: %v", name, known)
		}
		cfg.Strategies = append(cfg.Strategies, strategies[i])
	}
	if names == nil {
		cfg.Strategies = strategies
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

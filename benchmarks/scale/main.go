// Command scale measures what many locks, waiters, processes, masters and starts cost the strategies on Redis. It starts the servers that it needs.
//
//	go run .                                          # everything, as text; an hour
//	go run . -point held -locks 1000,100000           # one point, smaller
//	go run . -point crowd -only blpop -waiters 1,1000
//	make bench-scale                                  # everything, into docs/scale.md
//
// The figures are counts, bytes, and the CPU time of the processes themselves, which other work on the
// machine changes little. Where a time of the clock counts, the load of the machine stands beside it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/distlock/locker/benchmarks/internal/rig"
)

// A point is one question about scale. What measure returns goes into the page, between two marks.
type point struct {
	name    string
	measure func(context.Context, *config) (markdown string, err error)
}

var points = []point{
	{"held", measureHeld}, {"away", measureAway}, {"waiting", measureWaiting}, {"crowd", measureCrowd},
	{"cluster", measureCluster}, {"startup", measureStartup}, {"fleet", measureFleet},
}

type config struct {
	only       []string // strategies
	locks      []int
	storm      []int
	waiters    []int
	goroutines int
	keys       int
	ttl        time.Duration
	duration   time.Duration
	rounds     int
	lockers    int
}

func main() {
	serveParent()
	rig.Main("scale", run)
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("scale", flag.ExitOnError)
	which := flags.String("point", "", "measure only these points, of "+names())
	only := flags.String("only", "setnx,hashreentrant,blpop", "strategies")
	locks := flags.String("locks", "1000,10000,100000,1000000", "held: how many locks")
	storm := flags.String("storm", "100000,1000000", "away: how many locks")
	waiters := flags.String("waiters", "1,10,100,1000,5000", "crowd: how many Lockers wait for the key; above 1,000 only blpop's. A server with 20,000 open files bears 5,000 connections of four")
	docs := flags.String("docs", "", "put the results into this page, in place of those that it has")
	cfg := &config{}
	flags.IntVar(&cfg.goroutines, "goroutines", 100_000, "waiting: how many goroutines wait")
	flags.IntVar(&cfg.keys, "keys", 10_000, "waiting: for how many keys")
	flags.DurationVar(&cfg.ttl, "ttl", 60*time.Second, "held and away: of the locks")
	flags.DurationVar(&cfg.duration, "duration", 2*time.Second, "crowd, cluster, fleet: of a measurement")
	flags.IntVar(&cfg.rounds, "rounds", 30, "startup: how many of each, in turns")
	flags.IntVar(&cfg.lockers, "lockers", 1000, "startup: how many come at once")
	_ = flags.Parse(args) // ExitOnError
	cfg.only = strings.Split(*only, ",")
	var errs []error
	for text, to := range map[string]*[]int{*locks: &cfg.locks, *storm: &cfg.storm, *waiters: &cfg.waiters} {
		for n := range strings.SplitSeq(text, ",") {
			i, err := strconv.Atoi(n)
			errs, *to = append(errs, err), append(*to, i)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	command := strings.Join(append([]string{"go run ."}, args...), " ")
	for _, p := range points {
		if *which != "" && !slices.Contains(strings.Split(*which, ","), p.name) {
			continue
		}
		before := load()
		text, err := p.measure(ctx, cfg)
		if err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		text = fmt.Sprintf("%s\n%s, `%s`, load of the machine %s before and %s after.\n",
			text, time.Now().UTC().Format(time.DateOnly), command, before, load())
		if *docs == "" {
			fmt.Printf("## %s\n\n%s\n", p.name, text)
		} else if err := insert(*docs, p.name, text); err != nil {
			return err
		}
	}
	return nil
}

func names() string {
	var out []string
	for _, p := range points {
		out = append(out, p.name)
	}
	return strings.Join(out, ",")
}

// progress prints a line for whoever waits.
func progress(format string, args ...any) {
	fmt.Fprintf(os.Stderr, time.Now().UTC().Format(time.TimeOnly)+" "+format+"\n", args...)
}

func load() string {
	text, _ := os.ReadFile("/proc/loadavg") // where there is one
	first, _, _ := strings.Cut(string(text), " ")
	return first
}

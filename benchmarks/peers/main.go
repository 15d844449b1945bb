// Command peers measures the strategies of this module beside other lock libraries,
// and beside what a lock costs at least, the plain commands without a library: all in
// one run, on one redis-server that it starts, in rounds in which each has its turn.
//
//	go run .                                                     # everything, as text
//	go run . -scenario solo,wide -rounds 3 -duration 500ms       # two scenarios, in less than a minute
//	go run . -scenario herd -only blpop,rueidislock -rounds 1
//	make bench-peers                                             # everything, into docs/performance.md
//
// Each measurement runs in processes of its own, which are this program again.
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
)

type config struct {
	scenarios []scenario
	rounds    int
	duration  time.Duration
	command   string
}

func main() {
	if os.Getenv(isChild) != "" {
		serveParent()
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "peers:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("peers", flag.ExitOnError)
	var (
		scenarioNames  = flags.String("scenario", "", "measure only these scenarios, of "+strings.Join(names(), ","))
		contenderNames = flags.String("only", "", "measure only these contenders, e.g. floor,rueidislock,setnx")
		rounds         = flags.Int("rounds", 5, "measure each so many times, and take the median")
		length         = flags.Duration("duration", time.Second, "of each measurement")
		docs           = flags.String("docs", "", "write performance.md and its plots into this directory, instead of text")
	)
	_ = flags.Parse(args) // ExitOnError
	cfg := config{
		scenarios: only(list(*scenarioNames), list(*contenderNames)),
		rounds:    *rounds, duration: *length,
		command: strings.Join(append([]string{"go run ."}, args...), " "),
	}
	if len(cfg.scenarios) == 0 {
		return fmt.Errorf("no such scenario: there are %s", strings.Join(names(), ","))
	}
	if *docs != "" && *scenarioNames+*contenderNames != "" {
		return errors.New("-docs is for all scenarios and contenders")
	}
	b := &bench{stage: &stage{}}
	defer b.stage.end()
	servers, err := b.servers(ctx, 1)
	if err != nil {
		return err
	}
	page := newPage(cfg, servers[0].version(ctx))
	page.results, err = b.all(ctx, cfg)
	if *docs != "" && err == nil {
		return page.write(*docs)
	}
	page.print(os.Stdout, cfg.scenarios) // of an interrupted run what there is
	return err
}

func (b *bench) all(ctx context.Context, cfg config) (results, error) {
	r := results{}
	for _, s := range cfg.scenarios {
		rounds := cfg.rounds
		if s.rounds > 0 {
			rounds = min(rounds, s.rounds)
		}
		for round := range rounds {
			for _, set := range s.setups {
				for _, c := range s.who {
					if err := b.one(ctx, r, s, set, c, cfg.duration); err != nil {
						return r, err
					}
				}
			}
			fmt.Fprintf(os.Stderr, "%s: round %d of %d\n", s.name, round+1, rounds)
		}
	}
	return r, nil
}

// one measures once, and goes on with the others where a contender has failed.
func (b *bench) one(ctx context.Context, r results, s scenario, set setup, contender string, d time.Duration) error {
	got, err := b.measure(ctx, set, contender, d)
	if ctx.Err() != nil {
		return errors.New("interrupted")
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s %s: %s failed: %v\n", s.name, set.label, contender, err)
		return nil
	}
	r.add(s, set.label, contender, &got)
	var line []string
	for _, m := range s.metrics {
		line = append(line, m.name+" "+m.show(m.of(&got)))
	}
	fmt.Fprintf(os.Stderr, "%s %s: %s: %s\n", s.name, set.label, contender, strings.Join(line, ", "))
	if t := got.trouble(); t != "" {
		fmt.Fprintf(os.Stderr, "%s %s: %s: %s\n", s.name, set.label, contender, t)
	}
	return nil
}

func list(s string) []string {
	if s == "" {
		return nil
	}
	return strings.Split(s, ",")
}

func names() (out []string) {
	for _, s := range scenarios {
		if !slices.Contains(out, s.name) {
			out = append(out, s.name)
		}
	}
	return out
}

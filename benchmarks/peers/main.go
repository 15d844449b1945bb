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
	"strings"
	"time"

	"github.com/distlock/locker/benchmarks/internal/rig"
)

type config struct {
	Scenarios []scenario
	Rounds    int
	Duration  time.Duration
	Command   string
}

func main() {
	serveParent()
	rig.Main("peers", run)
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("peers", flag.ExitOnError)
	which := flags.String("scenario", "", "measure only these scenarios, of "+names())
	who := flags.String("only", "", "measure only these contenders, e.g. floor,rueidislock,setnx")
	rounds := flags.Int("rounds", 5, "measure each so many times, and take the median")
	length := flags.Duration("duration", time.Second, "of each measurement")
	docs := flags.String("docs", "", "write performance.md and its plots into this directory, instead of text")
	_ = flags.Parse(args) // ExitOnError
	cfg := config{only(*which, *who), *rounds, *length, strings.Join(append([]string{"go run ."}, args...), " ")}
	if len(cfg.Scenarios) == 0 {
		return errors.New("no such scenario: there are " + names())
	}
	if *docs != "" && *which+*who != "" {
		return errors.New("-docs is for all scenarios and contenders")
	}
	b := &bench{}
	defer b.stage.End()
	b.start(1)
	page := newPage(cfg, b.admins[0].InfoMap(ctx, "server").Item("Server", "redis_version"))
	err := b.all(ctx, page)
	if *docs != "" && err == nil {
		if err = page.write(*docs); err == nil {
			return nil
		}
	}
	page.print(os.Stdout, cfg.Scenarios) // what there is, of an interrupted run too
	return err
}

// all measures round by round. It goes on with the others where a contender has failed.
func (b *bench) all(ctx context.Context, p *page) error {
	for _, s := range p.Scenarios {
		rounds := p.Rounds
		if s.rounds > 0 {
			rounds = min(rounds, s.rounds)
		}
		for round := range rounds {
			for _, set := range s.setups {
				for _, c := range s.who {
					got, err := b.measure(ctx, set, c, p.Duration)
					if ctx.Err() != nil {
						return errors.New("interrupted")
					}
					line := fmt.Sprintf("%s %s round %d of %d, %s:", s.name, set.label, round+1, rounds, c)
					if err != nil {
						fmt.Fprintln(os.Stderr, line, "failed:", err)
						continue
					}
					p.add(s, set.label, c, &got)
					for _, m := range s.metrics {
						line += fmt.Sprintf(" %s %s;", m.name, m.show(m.of(&got)))
					}
					fmt.Fprintln(os.Stderr, line, got.trouble())
				}
			}
		}
	}
	return nil
}

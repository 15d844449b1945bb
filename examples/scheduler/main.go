// Scheduler has several instances with the same periodic job, of which one is to run it
// at each tick. Their clocks differ by some milliseconds, as those of hosts do. It runs the
// job three times over:
//
//	no lock            every instance runs it
//	unlocked at once   the lock is free again when the job is over; an instance whose
//	                   clock is late finds it so, and runs the job a second time
//	a key for a tick   the key names the tick, and its lock is left to its TTL: however
//	                   late an instance is, it finds the tick taken
//
// Start reading at job.go.
//
//	go run ./examples/scheduler
//	go run ./examples/scheduler -instances 10 -url setnx+redis://localhost:6379
//
// A program with a scheduler already has a simpler way: adapters/gocron and adapters/cron
// hold one key for the job for a minimum time after it began. That is enough for clocks
// that differ by less, and excludes a long run from the next one, too.
//
// Without -url the instances share a store in this process, as processes share a Redis.
// The exit code is 0 when the last way ran the job exactly once at each tick, 1 when not,
// 2 for bad usage and 130 after Ctrl-C.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/distlock/locker/examples/internal/cli"
)

func main() { cli.Main("scheduler", run) }

type config struct {
	url       string
	instances int
	ticks     int
	every     time.Duration
}

func run(ctx context.Context, p *cli.Program) error {
	var cfg config
	p.StringVar(&cfg.url, "url", "memory://scheduler", "the `URL` of a strategy")
	p.IntVar(&cfg.instances, "instances", 3, "instances of the program")
	p.IntVar(&cfg.ticks, "ticks", 10, "how often the job is due")
	p.DurationVar(&cfg.every, "every", 200*time.Millisecond, "time between two ticks")
	if err := p.Parse(); err != nil {
		return err
	}
	if cfg.instances < 1 || cfg.ticks < 1 || cfg.every < 10*time.Millisecond {
		return p.Misused("-instances and -ticks are at least 1, -every 10ms")
	}
	return compare(ctx, cfg, p.Stdout, p.Stderr)
}

// compare runs the job in each way and prints a table.
func compare(ctx context.Context, cfg config, stdout, stderr io.Writer) (failed error) {
	t := tabwriter.NewWriter(stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "LOCK\tTICKS\tRUNS\tMISSED\tTWICE OR MORE\tVERDICT")
	for _, w := range ways {
		fmt.Fprintf(stderr, "%s: %d instances, %d ticks\n", w.name, cfg.instances, cfg.ticks)
		counts, err := schedule(ctx, cfg, w)
		if err != nil {
			return err
		}
		var runs, missed, twice int
		for _, n := range counts {
			runs += n
			switch {
			case n == 0:
				missed++
			case n > 1:
				twice++
			}
		}
		verdict := "ok"
		switch {
		case missed+twice > 0 && w.once:
			verdict = "FAILED"
			failed = fmt.Errorf("with %s the job did not run exactly once at each tick", w.name)
		case twice > 0:
			verdict = "ran again, as expected"
		}
		fmt.Fprintf(t, "%s\t%d\t%d\t%d\t%d\t%s\n", w.name, cfg.ticks, runs, missed, twice, verdict)
	}
	return errors.Join(failed, t.Flush())
}

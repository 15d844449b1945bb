// Swap moves a live fleet from one locking strategy to another, and on to a
// third, by a rolling restart: one process after another is stopped and started
// again with the next strategy, while all of them go on locking the same key. Each
// section checks that it is alone and that its fencing token is the greatest so
// far.
//
//	go run ./examples/swap                      # on an embedded server
//	go run ./examples/swap -redis redis://localhost:6379/0
//	go run ./examples/swap -strategies blpop,setnx -workers 8 -phase 2s
//
// It exits with 1 if two sections ever overlapped or a token was out of order.
package main

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/distlock/locker/examples/internal/cli"
	"github.com/distlock/locker/internal/child"
	"github.com/distlock/locker/internal/embedredis"
)

func main() {
	child.Serve(workerKind, work)
	cli.Main("swap", run)
}

func run(ctx context.Context, p *cli.Program) error {
	url := p.String("redis", "", "`URL` of a Redis; default: an embedded one")
	names := p.String("strategies", "setnx,hashreentrant,blpop", "the strategies, in order")
	workers := p.Int("workers", 4, "processes in the fleet")
	phase := p.Duration("phase", 600*time.Millisecond, "time between two restarts")
	if err := p.Parse(); err != nil {
		return err
	}
	steps := strings.Split(*names, ",")
	for _, s := range steps {
		if strategies[s] == nil {
			return p.Misused("unknown strategy %q; there are %s", s, strategyNames())
		}
	}
	if *workers < 1 {
		return p.Misused("-workers %d: at least 1", *workers)
	}
	if *url == "" {
		urls, stop, err := embedredis.Instead(p.Stderr, "-redis", 1)
		if err != nil {
			return err
		}
		defer stop()
		*url = urls[0]
	}
	opts, err := redis.ParseURL(*url)
	if err != nil {
		return errors.New("-redis is not a Redis URL") // it may hold a password
	}
	rdb := redis.NewClient(opts)
	defer rdb.Close()

	m := &move{rdb: rdb, url: *url, steps: steps, phase: *phase, out: p.Stdout}
	defer m.stopAll()
	return m.roll(ctx, *workers)
}

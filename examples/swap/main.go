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
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/distlock/locker/internal/embedredis"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if cfg := os.Getenv(workerEnv); cfg != "" {
		if err := work(ctx, cfg, os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, "worker:", err)
			os.Exit(1)
		}
		return
	}
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
	case ctx.Err() != nil:
		os.Exit(130)
	case err != nil:
		fmt.Fprintln(os.Stderr, "swap:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("swap", flag.ContinueOnError)
	flags.SetOutput(stderr)
	url := flags.String("redis", "", "`URL` of a Redis; default: an embedded one")
	names := flags.String("strategies", "setnx,hashreentrant,blpop", "the strategies, in order")
	workers := flags.Int("workers", 4, "processes in the fleet")
	phase := flags.Duration("phase", 600*time.Millisecond, "time between two restarts")
	if err := flags.Parse(args); err != nil {
		return err
	}
	steps := strings.Split(*names, ",")
	for _, s := range steps {
		if strategies[s] == nil {
			return fmt.Errorf("unknown strategy %q; there are %s", s, strategyNames())
		}
	}
	if *workers < 1 {
		return fmt.Errorf("-workers %d: at least 1", *workers)
	}
	if *url == "" {
		srv, err := embedredis.Start()
		if err != nil {
			return err
		}
		defer srv.Close()
		*url = srv.URL()
		fmt.Fprintf(stderr, "No -redis given: using an embedded server (miniredis) at %s\n", *url)
	}
	opts, err := redis.ParseURL(*url)
	if err != nil {
		return errors.New("-redis is not a Redis URL") // it may hold a password
	}
	rdb := redis.NewClient(opts)
	defer rdb.Close()

	m := &move{rdb: rdb, url: *url, steps: steps, phase: *phase, out: stdout}
	defer m.stopAll()
	return m.roll(ctx, *workers)
}

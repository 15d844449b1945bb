// Flashsale sells one product through several shops at once, with and without
// locks, and counts what was sold beyond the stock.
//
//	go run ./examples/flashsale                      # all strategies in turn
//	go run ./examples/flashsale -strategy none,setnx
//	go run ./examples/flashsale -redis redis://localhost:6379/0
//	go run ./examples/flashsale -config examples/flashsale/blpop.yaml
//	go run ./examples/flashsale -strategy setnx -paused
//
// Every shop is a process of its own, serving HTTP. The stock is a number in
// Redis, and shops treat it as careless shops do: read it, take the payment,
// write it back less one. Buyers send their requests to shops picked at
// random. What the strategies do about it:
//
//	none           nothing: sales overwrite each other, the shops oversell
//	naive          what people write by hand, SETNX with a fixed expiry and DEL:
//	               oversells whenever a payment takes longer than the expiry
//	memory         one shop only, since its locks do not reach other processes
//	setnx, ...     the strategies of this module: stop at the last unit
//
// Start reading at shop.go: a sale under a lock, whatever the strategy.
//
// With -config the shops' Locker is configured by the file (a strategy.Config, in YAML
// or JSON), wherever it says its Redis is; the stock stays where it is otherwise.
//
// With -paused one shop is stopped (SIGSTOP) past its lease, between its last look at it and its
// write, and goes on when another shop has sold. No lock stops its late write. Each sale is held once
// without a check of the fencing token, which oversells, and once with it, where the late write is
// refused. See paused.go.
//
// Without -redis it starts servers of its own (miniredis; redlock needs five), so that
// nothing needs to be installed. They run scripts slowly: to compare how long strategies
// wait, give it a real Redis.
//
// Ctrl-C stops everything. The exit code is 0 when every real strategy sold
// exactly the stock, 1 when one did not, 2 for bad usage and 130 after Ctrl-C.
package main

import (
	"context"
	"errors"
	"flag"
	"slices"

	"github.com/distlock/locker/examples/internal/cli"
	"github.com/distlock/locker/internal/child"
)

func main() {
	child.Serve(shopKind, serve)
	cli.Main("flashsale", run)
}

type config struct {
	methods     []method
	redis       string
	shops       int
	buyers      int
	stock       int
	concurrency int
	json        bool
}

func run(ctx context.Context, p *cli.Program) error {
	cfg, err := parse(p)
	if err != nil {
		return err
	}
	results, err := sellOut(ctx, cfg, p.Stderr)
	if len(results) > 0 {
		err = errors.Join(err, report(p.Stdout, results, cfg.json))
	}
	if err == nil && slices.ContainsFunc(results, func(r result) bool { return !r.OK }) {
		err = cli.ErrFailed
	}
	return err
}

func parse(p *cli.Program) (config, error) {
	var cfg config
	names := p.String("strategy", "all", "comma list of "+methodNames()+", or all")
	file := p.String("config", "", "a strategy's configuration, in YAML or JSON, in place of -strategy")
	p.StringVar(&cfg.redis, "redis", "", "URL of a Redis to use; a comma list where a strategy uses several (default an embedded server)")
	p.IntVar(&cfg.shops, "shops", 4, "shop processes")
	p.IntVar(&cfg.buyers, "buyers", 600, "buyers, each wanting one unit")
	p.IntVar(&cfg.stock, "stock", 100, "units in stock")
	p.IntVar(&cfg.concurrency, "concurrency", 40, "buyers in the shops at a time")
	paused := p.Bool("paused", false, "stop a shop past its lease, without a check of its fencing token and with it")
	p.BoolVar(&cfg.json, "json", false, "print the results as JSON")
	err := p.Parse()
	switch {
	case err != nil:
		return cfg, err
	case min(cfg.shops, cfg.buyers, cfg.stock, cfg.concurrency) < 1:
		return cfg, p.Misused("-shops, -buyers, -stock and -concurrency are at least 1")
	case *file == "":
		cfg.methods, err = pick(*names)
	case given(p.FlagSet, "strategy"):
		return cfg, p.Misused("-config names the strategy: leave -strategy out")
	default:
		var m method
		m, err = configured(*file)
		cfg.methods = []method{m}
	}
	if err == nil && *paused {
		cfg.methods = withPause(cfg.methods, cfg.stock)
		if len(cfg.methods) == 0 || cfg.shops < 2 || min(cfg.concurrency, cfg.buyers) < 16 {
			return cfg, p.Misused("-paused wants a strategy whose locks reach other processes, 2 shops and 16 buyers at a time or more")
		}
	}
	if err != nil {
		err = p.Misused("%v", err)
	}
	return cfg, err
}

func given(f *flag.FlagSet, name string) (yes bool) {
	f.Visit(func(fl *flag.Flag) { yes = yes || fl.Name == name })
	return yes
}

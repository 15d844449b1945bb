// Flashsale sells one product through several shops at once, with and without
// locks, and counts what was sold beyond the stock.
//
//	go run ./examples/flashsale                      # all strategies in turn
//	go run ./examples/flashsale -strategy none,setnx
//	go run ./examples/flashsale -redis redis://localhost:6379/0
//	go run ./examples/flashsale -config examples/flashsale/blpop.yaml
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
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

const (
	exitOK          = 0
	exitFailed      = 1
	exitUsage       = 2
	exitInterrupted = 130
)

func main() {
	if cfg, ok := os.LookupEnv(shopEnv); ok {
		os.Exit(shopMain(cfg))
	}
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
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

func run(args []string, stdout, stderr *os.File) int {
	cfg, err := parse(args, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return exitOK
	case err != nil:
		return exitUsage // the flag package has told why
	}

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second Ctrl-C does not wait

	results, err := sellOut(ctx, cfg, stderr)
	if len(results) > 0 {
		if werr := report(stdout, results, cfg.json); werr != nil && err == nil {
			err = werr
		}
	}
	if ctx.Err() != nil {
		fmt.Fprintln(stderr, "flashsale: interrupted")
		return exitInterrupted
	}
	if err != nil {
		fmt.Fprintln(stderr, "flashsale:", err)
		return exitFailed
	}
	for _, r := range results {
		if !r.OK {
			return exitFailed
		}
	}
	return exitOK
}

func parse(args []string, stderr io.Writer) (config, error) {
	var cfg config
	f := flag.NewFlagSet("flashsale", flag.ContinueOnError)
	f.SetOutput(stderr)
	names := f.String("strategy", "all", "comma list of "+methodNames()+", or all")
	file := f.String("config", "", "a strategy's configuration, in YAML or JSON, in place of -strategy")
	f.StringVar(&cfg.redis, "redis", "", "URL of a Redis to use; a comma list where a strategy uses several (default an embedded server)")
	f.IntVar(&cfg.shops, "shops", 4, "shop processes")
	f.IntVar(&cfg.buyers, "buyers", 600, "buyers, each wanting one unit")
	f.IntVar(&cfg.stock, "stock", 100, "units in stock")
	f.IntVar(&cfg.concurrency, "concurrency", 40, "buyers in the shops at a time")
	f.BoolVar(&cfg.json, "json", false, "print the results as JSON")
	if err := f.Parse(args); err != nil {
		return cfg, err
	}
	err := func() (err error) {
		if f.NArg() > 0 {
			return fmt.Errorf("unexpected argument %q", f.Arg(0))
		}
		if min(cfg.shops, cfg.buyers, cfg.stock, cfg.concurrency) < 1 {
			return errors.New("-shops, -buyers, -stock and -concurrency are at least 1")
		}
		if *file == "" {
			cfg.methods, err = pick(*names)
			return err
		}
		if given(f, "strategy") {
			return errors.New("-config names the strategy: leave -strategy out")
		}
		m, err := configured(*file)
		cfg.methods = []method{m}
		return err
	}()
	if err != nil {
		fmt.Fprintln(stderr, "flashsale:", err)
	}
	return cfg, err
}

func given(f *flag.FlagSet, name string) (yes bool) {
	f.Visit(func(fl *flag.Flag) { yes = yes || fl.Name == name })
	return yes
}

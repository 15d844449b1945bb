// Package sale is the program examples/flashsale. examples/stores runs it with the strategies of further stores.
// Start reading at shop.go: a sale under a lock, whatever the strategy.
package sale

import (
	"context"
	"errors"
	"flag"
	"slices"

	"github.com/distlock/locker/examples/internal/cli"
	"github.com/distlock/locker/internal/child"
)

// Main runs the program flashsale. It exits the process.
func Main() {
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

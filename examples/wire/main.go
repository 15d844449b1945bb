// Command wire shows two ways of choosing a strategy with github.com/google/wire,
// under one and the same program:
//
//   - when the program is built: newFixed takes wireset.HashReentrant. Another
//     set in wire.go, and `make wire`, and the program uses another strategy.
//   - when it starts: newConfigured takes wireset.Set, and a Config from a file
//     or a URL names the strategy.
//
// Without arguments it does both on a server of its own (miniredis), the second
// with each strategy there is for one Redis. With -config locks.yaml or -url it
// does the second, with what they name.
//
//	go run ./examples/wire
//	go run ./examples/wire -url 'blpop+redis://localhost:6379/0?ttl=10s'
package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/distlock/locker"
	"github.com/distlock/locker/examples/internal/cli"
	"github.com/distlock/locker/internal/embedredis"
	"github.com/distlock/locker/strategy"
	"github.com/distlock/locker/strategy/wireset"
)

func main() {
	cli.Main("wire", func(ctx context.Context, p *cli.Program) error {
		config := p.String("config", "", "a strategy.Config in JSON or YAML")
		url := p.String("url", "", "the URL of a strategy, instead of -config")
		if err := p.Parse(); err != nil {
			return err
		}
		return run(ctx, p.Stdout, *config, *url)
	})
}

func run(ctx context.Context, out io.Writer, config, url string) error {
	switch {
	case config != "" && url != "":
		return errors.New("-config and -url exclude each other")
	case config != "":
		cfg, err := strategy.Load(config)
		if err != nil {
			return err
		}
		return configured(ctx, out, cfg)
	case url != "":
		return configured(ctx, out, strategy.Config{URL: url})
	}

	server, err := embedredis.Start()
	if err != nil {
		return err
	}
	defer server.Close()
	if err := fixed(ctx, out, redisURL(server.URL())); err != nil {
		return err
	}
	for _, name := range []string{"setnx", "hashreentrant", "blpop"} {
		if err := configured(ctx, out, strategy.Config{Strategy: name, URL: server.URL()}); err != nil {
			return err
		}
	}
	return nil
}

func fixed(ctx context.Context, out io.Writer, url redisURL) error {
	fmt.Fprintln(out, "chosen when built: hashreentrant")
	app, release, err := newFixed(url, wireset.Options{locker.WithPrefix("wire:")}, out)
	if err != nil {
		return err
	}
	defer release()
	return app.report(ctx)
}

func configured(ctx context.Context, out io.Writer, cfg strategy.Config) error {
	fmt.Fprintln(out, "chosen when started:", cfg) // shows no password
	app, release, err := newConfigured(ctx, cfg, out)
	if err != nil {
		return err
	}
	defer release()
	return app.report(ctx)
}

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/distlock/locker"
	"github.com/distlock/locker/strategy"
	"github.com/spf13/cobra"
)

// storeFlags say which lock store is meant.
type storeFlags struct {
	url, config string
	strategy    string // instead of the one that is configured
	tls         bool   // the store that is meant is spoken to by TLS; once it is known
}

func (f *storeFlags) add(c *cobra.Command) {
	c.Flags().StringVar(&f.url, "url", "", "URL of the lock store (default $LOCKER_URL)")
	c.Flags().StringVar(&f.config, "config", "", "`file` with the library's Config, .yaml or .json")
	_ = c.MarkFlagFilename("config", "yaml", "yml", "json")
}

const storeHelp = `The lock store is found by --url, or else --config, or else the environment variable
LOCKER_URL: a URL <strategy>+<scheme>://..., such as setnx+redis://host:6379 (a lock as
every Redis client understands it), hashreentrant+redis:// (Redisson's),
blpop+redis:// (first come, first served), redlock+redis://a?node=b&node=c (a quorum).`

// configuration is the library's Config that the flags and the environment ask for.
func (f *storeFlags) configuration(c *cobra.Command) (cfg strategy.Config, err error) {
	switch env := os.Getenv("LOCKER_URL"); {
	case f.config != "":
		if cfg, err = strategy.Load(f.config); err != nil {
			return cfg, err
		}
		if f.url != "" {
			cfg.URL = f.url
		}
	case f.url != "":
		cfg.URL = f.url
	case env != "":
		cfg.URL = env
	default:
		return cfg, fmt.Errorf("no lock store is given: --url, --config or the environment variable LOCKER_URL; see %s --help", c.CommandPath())
	}
	f.tls = speaksTLS(cfg.URL) || cfg.TLS != nil
	if cfg.Strategy == "memory" || strings.HasPrefix(cfg.URL, "memory:") {
		return cfg, errors.New("the strategy memory locks within one process only: no other locker, nor any program, has these locks")
	}
	return cfg, nil
}

func speaksTLS(url string) bool {
	scheme, _, _ := strings.Cut(url, "://")
	return strings.HasSuffix(scheme, "rediss")
}

// admin opens the store to look at locks.
func (f *storeFlags) admin(c *cobra.Command) (locker.Admin, func(), error) {
	cfg, err := f.configuration(c)
	if err != nil {
		return nil, nil, &exit{exitUsage, err}
	}
	if f.strategy != "" && !strings.HasPrefix(cfg.URL, "redlock+") && cfg.Strategy != "redlock" && f.strategy != "redlock" {
		if _, rest, ok := strings.Cut(cfg.URL, "+"); ok && cfg.Strategy == "" {
			cfg.URL = f.strategy + "+" + rest
		} else {
			cfg.Strategy = f.strategy
		}
	}
	l, release, err := strategy.Open(c.Context(), cfg)
	if err != nil {
		return nil, nil, &exit{exitUsage, err}
	}
	a, ok := l.(locker.Admin)
	if !ok {
		release()
		return nil, nil, &exit{exitUsage, fmt.Errorf("%s does not tell who holds a lock", cfg.URL)}
	}
	return a, release, nil
}

// as opens the store for locks of a strategy on one server, whichever is configured.
func (f *storeFlags) as(c *cobra.Command, name string) (locker.Admin, func(), error) {
	of := *f
	if name == "redisson" {
		name = "hashreentrant"
	}
	of.strategy = name
	return of.admin(c)
}

// hint says what may help where the store cannot be used.
func (f *storeFlags) hint() string {
	if f.tls {
		return "is the server up, and does it speak TLS on this port? one that does not takes redis instead of rediss"
	}
	return "is the server up, and its address right? a port that speaks TLS takes rediss instead of redis"
}

// storeError is what an error of the library is for the command line.
func (f *storeFlags) storeError(err error) error {
	switch {
	case errors.Is(err, context.Canceled):
		return &exit{code: exitInterrupted}
	case errors.Is(err, locker.ErrUnavailable):
		return &exit{exitUnavailable, fmt.Errorf("%w (%s)", err, f.hint())}
	}
	return &exit{exitUsage, err}
}

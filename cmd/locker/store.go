package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/distlock/locker"
	"github.com/distlock/locker/strategy"
	"github.com/spf13/cobra"
)

// storeFlags say which lock store is meant.
type storeFlags struct {
	url, config string
	strategy    string // instead of the one that is configured
	from        string // where the URL stands, once it is known
	tls         bool   // the store that is meant is spoken to by TLS; once it is known
	store       string // its kind: "redis", "postgres", "mysql", "etcd"; once it is known
}

func (f *storeFlags) add(c *cobra.Command) {
	c.Flags().StringVar(&f.url, "url", "", "URL of the lock store (default $LOCKER_URL)")
	c.Flags().StringVar(&f.config, "config", "", "`file` with the library's Config, .yaml or .json")
	_ = c.MarkFlagFilename("config", "yaml", "yml", "json")
}

const storeHelp = `The lock store is found by --url, or else --config, or else the environment variable
LOCKER_URL: a URL <strategy>+<scheme>://..., such as setnx+redis://host:6379 (a lock as
every Redis client understands it), hashreentrant+redis:// (Redisson's),
blpop+redis:// (first come, first served), redlock+redis://a?node=b&node=c (a quorum),
postgres://user@host/database, mysql://user@host/database (MariaDB, too),
etcd://host1,host2,host3 (or etcds://). No output shows the password in it. With --url and
--config, the URL replaces that of the file.`

// configuration returns the library's Config that the flags and the environment ask for.
func (f *storeFlags) configuration(c *cobra.Command) (cfg strategy.Config, err error) {
	switch env := os.Getenv("LOCKER_URL"); {
	case f.config != "":
		f.from = "--config " + f.config
		if cfg, err = strategy.Load(f.config); err != nil {
			return cfg, err
		}
		if f.url != "" {
			cfg.URL, f.from = f.url, "--url"
		}
	case f.url != "":
		cfg.URL, f.from = f.url, "--url"
	case env != "":
		cfg.URL, f.from = env, "the environment variable LOCKER_URL"
	default:
		return cfg, fmt.Errorf("no lock store is given: --url, --config or the environment variable LOCKER_URL; see %s --help", c.CommandPath())
	}
	f.tls, f.store = speaksTLS(cfg.URL) || cfg.TLS != nil, storeOf(cfg)
	return cfg, f.check(cfg)
}

// schemeForm keeps what may be a password out of errors.
var schemeForm = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9+.-]*$`)

// check finds what is wrong with the URL and the strategy, as far as people who do not write
// Go need other words for it than the library has.
func (f *storeFlags) check(cfg strategy.Config) error {
	known := knownStrategies()
	scheme, _, isURL := strings.Cut(cfg.URL, "://")
	name, _, combined := strings.Cut(scheme, "+")
	if cfg.Strategy != "" {
		name = cfg.Strategy
	}
	switch {
	case cfg.URL != "" && !isURL && !strings.Contains(cfg.URL, "${"):
		typed := ""
		if f.from == "--url" && !strings.ContainsAny(cfg.URL, "@?") {
			typed = fmt.Sprintf(" %q", cfg.URL)
		}
		return fmt.Errorf("%s%s is no URL: it has the form <strategy>+<scheme>://..., such as setnx+redis://localhost:6379", f.from, typed)
	case cfg.Strategy == "" && !schemeForm.MatchString(scheme), slices.Contains(known, name):
		return nil // or the library says what is wrong
	case name == "memory":
		return fmt.Errorf("%s: the strategy memory locks within one process only: no other locker, nor any program, has these locks", f.from)
	case cfg.Strategy == "" && !combined && (strings.HasPrefix(name, "redis") || name == "unix"):
		return fmt.Errorf("%s names no strategy; put one before the scheme, as in setnx+%s://: there are %s", f.from, name, strings.Join(known, ", "))
	}
	return fmt.Errorf("%s: unknown strategy %q; there are %s, such as in setnx+redis://localhost:6379", f.from, name, strings.Join(known, ", "))
}

// knownStrategies are those whose locks other programs see.
func knownStrategies() []string {
	return slices.DeleteFunc(strategy.Names(), func(name string) bool { return name == "memory" })
}

// strategyOf returns the strategy of a configuration.
func strategyOf(cfg strategy.Config) string {
	scheme, _, isURL := strings.Cut(cfg.URL, "://")
	name, _, _ := strings.Cut(scheme, "+")
	if cfg.Strategy != "" || !isURL {
		name = cfg.Strategy
	}
	return name
}

// inRedis reports whether the locks of a configuration are in Redis, on one server or deployment.
func inRedis(cfg strategy.Config) bool { return slices.Contains(redisStrategies, strategyOf(cfg)) }

// redisStrategies recognise one another's locks.
var redisStrategies = []string{"setnx", "hashreentrant", "blpop"}

// open opens the store.
func (f *storeFlags) open(c *cobra.Command, cfg strategy.Config) (*locker.Client, func(), error) {
	l, release, err := strategy.Open(c.Context(), cfg)
	if err != nil {
		code := exitUsage
		if errors.Is(err, locker.ErrUnavailable) { // some clients ask a server when they are made
			code = exitUnavailable
		}
		return nil, nil, &exit{code, fmt.Errorf("%s: %s", f.from, plain(err))}
	}
	return l, release, nil
}

func speaksTLS(url string) bool {
	scheme, _, _ := strings.Cut(url, "://")
	return strings.HasSuffix(scheme, "rediss") || strings.HasSuffix(scheme, "etcds")
}

// storeOf returns the kind of the store of a configuration.
func storeOf(cfg strategy.Config) string {
	scheme, _, isURL := strings.Cut(cfg.URL, "://")
	if !isURL {
		scheme = cfg.Strategy
	}
	_, last, combined := strings.Cut(scheme, "+")
	if !combined {
		last = scheme
	}
	for prefix, kind := range map[string]string{"postgres": "postgres", "mysql": "mysql", "mariadb": "mysql", "etcd": "etcd"} {
		if strings.HasPrefix(last, prefix) {
			return kind
		}
	}
	return "redis"
}

// admin opens the store to look at locks.
func (f *storeFlags) admin(c *cobra.Command) (*locker.Client, func(), error) {
	cfg, err := f.configuration(c)
	if err != nil {
		return nil, nil, &exit{exitUsage, err}
	}
	if slices.Contains(redisStrategies, f.strategy) && inRedis(cfg) {
		if _, rest, ok := strings.Cut(cfg.URL, "+"); ok && cfg.Strategy == "" {
			cfg.URL = f.strategy + "+" + rest
		} else {
			cfg.Strategy = f.strategy
		}
	}
	return f.open(c, cfg)
}

// as opens the store for locks of a strategy on one server, whichever is configured.
func (f *storeFlags) as(c *cobra.Command, name string) (*locker.Client, func(), error) {
	of := *f
	if name == "redisson" {
		name = "hashreentrant"
	}
	of.strategy = name
	return of.admin(c)
}

// storeError returns the command's error for an error of the library.
func (f *storeFlags) storeError(err error) error {
	switch {
	case errors.Is(err, context.Canceled):
		return &exit{code: exitInterrupted}
	case errors.Is(err, locker.ErrUnavailable):
		return &exit{exitUnavailable, f.hinted(err)}
	}
	return &exit{exitUsage, err}
}

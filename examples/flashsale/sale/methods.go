package sale

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/distlock/locker"
	"github.com/distlock/locker/strategy"
)

// method is one way to run the sale. Its entry in the table is all there is to
// adding one.
type method struct {
	name string

	// careless makes the seller of one that is there to fail. The others are
	// strategies of package strategy, of this name unless config says more.
	careless func(rdb redis.UniversalClient, prefix string, s shelf) seller
	config   string // path of a strategy.Config

	// servers says which of the Redis servers at hand a strategy uses.
	servers servers
	// oneShop says why there must be no second shop, if so.
	oneShop string
	// paused says that a shop is stopped during the sale, if so.
	paused *pausing
}

type servers int

const (
	first servers = iota
	all
	none
)

var methods = []method{
	{name: "none", careless: func(_ redis.UniversalClient, _ string, s shelf) seller {
		return unlockedShop{s}
	}},
	{name: "naive", careless: func(rdb redis.UniversalClient, prefix string, s shelf) seller {
		return naiveShop{rdb, prefix + product, s}
	}},
	{name: "memory", servers: none, oneShop: "its locks do not reach other processes"},
	{name: "setnx"},
	{name: "hashreentrant"},
	{name: "blpop"},
	{name: "redlock", servers: all},
}

// seller is a shop of any kind.
type seller interface {
	sell(ctx context.Context, o *order) error
}

// shop opens a shop of this method; the func closes it.
func (m method) shop(ctx context.Context, rdbs []redis.UniversalClient, prefix string) (seller, func(), error) {
	shelf := newShelf(rdbs[0], prefix)
	if m.careless != nil {
		return m.careless(rdbs[0], prefix, shelf), func() {}, nil
	}
	cfg, err := m.locks(rdbs)
	if err != nil {
		return nil, nil, err
	}
	cfg.Options = append(cfg.Options, locker.WithPrefix(prefix))
	if m.paused != nil {
		cfg.Options = append(cfg.Options, locker.WithTTL(pausedTTL))
	}
	locks, release, err := strategy.Open(ctx, cfg)
	if err != nil {
		return nil, nil, err
	}
	if m.paused == nil {
		return shop{locks, shelf}, release, nil
	}
	s, err := m.paused.shop(shop{locks, shelf}, prefix)
	return s, release, err
}

// locks returns the configuration of the Locker: the file's, if there is one, with the
// Redis servers at hand unless it says where its own are.
func (m method) locks(rdbs []redis.UniversalClient) (strategy.Config, error) {
	cfg := strategy.Config{Strategy: m.name}
	if m.config != "" {
		var err error
		if cfg, err = strategy.Load(m.config); err != nil {
			return cfg, err
		}
		if cfg.URL != "" || len(cfg.Addrs) > 0 || cfg.UnixSocket != "" || len(cfg.Nodes) > 0 {
			return cfg, nil
		}
	}
	switch m.servers {
	case first:
		cfg.Client = rdbs[0]
	case all:
		cfg.Clients = rdbs
	}
	return cfg, nil
}

// configured returns the method that a file configures.
func configured(path string) (method, error) {
	cfg, err := strategy.Load(path)
	if err != nil {
		return method{}, err
	}
	scheme, _, _ := strings.Cut(os.Expand(cfg.URL, os.Getenv), ":")
	name, _, _ := strings.Cut(scheme, "+")
	m, err := find(cmp.Or(cfg.Strategy, name))
	if err == nil && m.careless != nil {
		err = fmt.Errorf("%s: %s is no strategy; there are %s", path, m.name, strings.Join(strategy.Names(), ", "))
	}
	m.config = path
	return m, err
}

func newShelf(rdb redis.UniversalClient, prefix string) shelf {
	return shelf{rdb: rdb, key: prefix + "stock"}
}

func methodNames() string {
	names := make([]string, len(methods))
	for i, m := range methods {
		names[i] = m.name
	}
	return strings.Join(names, "|")
}

func find(name string) (method, error) {
	for _, m := range methods {
		if m.name == name {
			return m, nil
		}
	}
	if slices.Contains(strategy.Names(), name) { // of another store, which the program has registered
		return method{name: name, servers: none}, nil
	}
	return method{}, fmt.Errorf("unknown strategy %q; there are %s", name, methodNames())
}

func pick(names string) ([]method, error) {
	if names == "all" {
		return methods, nil
	}
	var picked []method
	for name := range strings.SplitSeq(names, ",") {
		m, err := find(strings.TrimSpace(name))
		if err != nil {
			return nil, err
		}
		picked = append(picked, m)
	}
	return picked, nil
}

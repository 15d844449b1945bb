package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/distlock/locker"
	"github.com/distlock/locker/strategy/blpop"
	"github.com/distlock/locker/strategy/hashreentrant"
	"github.com/distlock/locker/strategy/memory"
	"github.com/distlock/locker/strategy/redlock"
	"github.com/distlock/locker/strategy/setnx"
)

// strategy is one way to run the sale. Its entry in the table is all there is
// to adding one.
type strategy struct {
	name string

	// open makes the Locker of a real strategy from the Redis servers at hand.
	open func(rdbs []redis.UniversalClient, opts ...locker.Option) (locker.Locker, error)
	// careless makes the seller of one that is there to fail; open is nil.
	careless func(rdb redis.UniversalClient, prefix string, s shelf) seller

	// oneShop says why there must be no second shop, if so.
	oneShop string
}

var strategies = []strategy{
	{name: "none", careless: func(_ redis.UniversalClient, _ string, s shelf) seller {
		return unlockedShop{s}
	}},
	{name: "naive", careless: func(rdb redis.UniversalClient, prefix string, s shelf) seller {
		return naiveShop{rdb, prefix + product, s}
	}},
	{name: "memory", open: func(_ []redis.UniversalClient, opts ...locker.Option) (locker.Locker, error) {
		return memory.New(opts...)
	}, oneShop: "its locks do not reach other processes"},
	{name: "setnx", open: onOne(setnx.New)},
	{name: "hashreentrant", open: onOne(hashreentrant.New)},
	{name: "blpop", open: onOne(blpop.New)},
	{name: "redlock", open: redlock.New},
}

// onOne adapts the constructor of a strategy that uses a single Redis.
func onOne(open func(redis.UniversalClient, ...locker.Option) (locker.Locker, error)) func([]redis.UniversalClient, ...locker.Option) (locker.Locker, error) {
	return func(rdbs []redis.UniversalClient, opts ...locker.Option) (locker.Locker, error) {
		return open(rdbs[0], opts...)
	}
}

// seller is a shop of any kind.
type seller interface {
	sell(ctx context.Context, o *order) error
}

// shop opens a shop of this strategy; the func closes it.
func (s strategy) shop(rdbs []redis.UniversalClient, prefix string) (seller, func() error, error) {
	shelf := newShelf(rdbs[0], prefix)
	if s.careless != nil {
		return s.careless(rdbs[0], prefix, shelf), func() error { return nil }, nil
	}
	locks, err := s.open(rdbs, locker.WithPrefix(prefix))
	if err != nil {
		return nil, nil, err
	}
	return shop{locks, shelf}, locks.Close, nil
}

func newShelf(rdb redis.UniversalClient, prefix string) shelf {
	return shelf{rdb, prefix + "stock"}
}

func strategyNames() string {
	names := make([]string, len(strategies))
	for i, s := range strategies {
		names[i] = s.name
	}
	return strings.Join(names, "|")
}

func find(name string) (strategy, error) {
	for _, s := range strategies {
		if s.name == name {
			return s, nil
		}
	}
	return strategy{}, fmt.Errorf("unknown strategy %q; there are %s", name, strategyNames())
}

func pick(names string) ([]strategy, error) {
	if names == "all" {
		return strategies, nil
	}
	var picked []strategy
	for name := range strings.SplitSeq(names, ",") {
		s, err := find(strings.TrimSpace(name))
		if err != nil {
			return nil, err
		}
		picked = append(picked, s)
	}
	return picked, nil
}

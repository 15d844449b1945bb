// Package wireset has provider sets for github.com/google/wire. Each set provides
// a *locker.Client, a locker.Locker bound to it, and a clean-up that closes the
// Client. A clean-up leaves the Redis clients that the program provides open.
//
// With [Set] a Config chooses the strategy at run time. With the other sets the
// injector chooses it when the program is built.
package wireset

import (
	"github.com/distlock/locker"
	"github.com/distlock/locker/strategy"
	"github.com/distlock/locker/strategy/blpop"
	"github.com/distlock/locker/strategy/hashreentrant"
	"github.com/distlock/locker/strategy/memory"
	"github.com/distlock/locker/strategy/redlock"
	"github.com/distlock/locker/strategy/setnx"
	"github.com/google/wire"
	"github.com/redis/go-redis/v9"
)

var asLocker = wire.Bind(new(locker.Locker), new(*locker.Client))

// The injector has to be given what a set takes.
var (
	// Set takes a context.Context and a strategy.Config.
	Set = wire.NewSet(strategy.Open, asLocker)
	// SetNX takes a redis.UniversalClient and Options.
	SetNX = wire.NewSet(ProvideSetNX, asLocker)
	// HashReentrant takes a redis.UniversalClient and Options.
	HashReentrant = wire.NewSet(ProvideHashReentrant, asLocker)
	// BLPop takes a redis.UniversalClient and Options.
	BLPop = wire.NewSet(ProvideBLPop, asLocker)
	// Redlock takes a []redis.UniversalClient, one for a node, and Options.
	Redlock = wire.NewSet(ProvideRedlock, asLocker)
	// Memory takes Options.
	Memory = wire.NewSet(ProvideMemory, asLocker)
)

// Options are the options of a Client. They have a type of their own because wire
// knows values by their type.
type Options []locker.Option

// ProvideSetNX calls [setnx.New].
func ProvideSetNX(rdb redis.UniversalClient, opts Options) (*locker.Client, func(), error) {
	return provide(setnx.New(rdb, opts...))
}

// ProvideHashReentrant calls [hashreentrant.New].
func ProvideHashReentrant(rdb redis.UniversalClient, opts Options) (*locker.Client, func(), error) {
	return provide(hashreentrant.New(rdb, opts...))
}

// ProvideBLPop calls [blpop.New].
func ProvideBLPop(rdb redis.UniversalClient, opts Options) (*locker.Client, func(), error) {
	return provide(blpop.New(rdb, opts...))
}

// ProvideRedlock calls [redlock.New].
func ProvideRedlock(rdbs []redis.UniversalClient, opts Options) (*locker.Client, func(), error) {
	return provide(redlock.New(rdbs, opts...))
}

// ProvideMemory calls [memory.New]. The store is the Client's own.
func ProvideMemory(opts Options) (*locker.Client, func(), error) {
	return provide(memory.New(opts...))
}

func provide(c *locker.Client, err error) (*locker.Client, func(), error) {
	if err != nil {
		return nil, nil, err
	}
	return c, func() { _ = c.Close() }, nil
}

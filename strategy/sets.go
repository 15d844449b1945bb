package strategy

import (
	"github.com/distlock/locker"
	"github.com/distlock/locker/strategy/blpop"
	"github.com/distlock/locker/strategy/hashreentrant"
	"github.com/distlock/locker/strategy/memory"
	"github.com/distlock/locker/strategy/redlock"
	"github.com/distlock/locker/strategy/setnx"
	"github.com/google/wire"
	"github.com/redis/go-redis/v9"
)

// Provider sets for github.com/google/wire, whose library is but markers: the
// tool that reads them is no dependency. Each provides a locker.Locker and its
// clean-up. With Set the strategy is chosen at run time, by a Config that the
// injector is given beside a context; with the others when the program is
// built, and they take a redis.UniversalClient and Options.
var (
	Set              = wire.NewSet(Open)
	SetNXSet         = wire.NewSet(ProvideSetNX)
	HashReentrantSet = wire.NewSet(ProvideHashReentrant)
	BLPopSet         = wire.NewSet(ProvideBLPop)
	RedlockSet       = wire.NewSet(ProvideRedlock) // takes a []redis.UniversalClient
	MemorySet        = wire.NewSet(ProvideMemory)  // takes no client
)

// Options are the options of a Locker under a type of their own, for wire to tell
// them from others.
type Options []locker.Option

// ProvideSetNX is [setnx.New] with a clean-up. The client stays the caller's.
func ProvideSetNX(rdb redis.UniversalClient, opts Options) (locker.Locker, func(), error) {
	return provide(setnx.New(rdb, opts...))
}

// ProvideHashReentrant is [hashreentrant.New] with a clean-up. The client stays the
// caller's.
func ProvideHashReentrant(rdb redis.UniversalClient, opts Options) (locker.Locker, func(), error) {
	return provide(hashreentrant.New(rdb, opts...))
}

// ProvideBLPop is [blpop.New] with a clean-up. The client stays the caller's.
func ProvideBLPop(rdb redis.UniversalClient, opts Options) (locker.Locker, func(), error) {
	return provide(blpop.New(rdb, opts...))
}

// ProvideRedlock is [redlock.New] with a clean-up. The clients stay the caller's.
func ProvideRedlock(rdbs []redis.UniversalClient, opts Options) (locker.Locker, func(), error) {
	return provide(redlock.New(rdbs, opts...))
}

// ProvideMemory is [memory.New] with a clean-up: a Locker with a store of its own.
func ProvideMemory(opts Options) (locker.Locker, func(), error) {
	return provide(memory.New(opts...))
}

func provide(l locker.Locker, err error) (locker.Locker, func(), error) {
	if err != nil {
		return nil, nil, err
	}
	return l, func() { _ = l.Close() }, nil
}

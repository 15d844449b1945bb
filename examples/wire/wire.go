//go:build wireinject

// wire reads this file; `make wire` writes wire_gen.go from it.

package main

import (
	"context"
	"io"

	"github.com/distlock/locker/strategy"
	"github.com/distlock/locker/strategy/wireset"
	"github.com/google/wire"
	"github.com/redis/go-redis/v9"
)

// newFixed has its strategy chosen here.
func newFixed(redisURL, wireset.Options, io.Writer) (*app, func(), error) {
	panic(wire.Build(
		wireset.HashReentrant,
		dial, wire.Bind(new(redis.UniversalClient), new(*redis.Client)),
		newApp,
	))
}

// newConfigured has its strategy chosen by a Config.
func newConfigured(context.Context, strategy.Config, io.Writer) (*app, func(), error) {
	panic(wire.Build(wireset.Set, newApp))
}

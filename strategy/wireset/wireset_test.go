package wireset

import (
	"testing"

	"github.com/distlock/locker"
	"github.com/distlock/locker/internal/test/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// The providers are functions that wire's injectors call.
func TestProviders(t *testing.T) {
	ctx := t.Context()
	rdb := redistest.Shared(t).Client(t)
	on := func(provide func(redis.UniversalClient, Options) (*locker.Client, func(), error)) func(Options) (*locker.Client, func(), error) {
		return func(opts Options) (*locker.Client, func(), error) { return provide(rdb, opts) }
	}
	for name, provide := range map[string]func(Options) (*locker.Client, func(), error){
		"setnx": on(ProvideSetNX), "hashreentrant": on(ProvideHashReentrant), "blpop": on(ProvideBLPop), "memory": ProvideMemory,
		"redlock": func(opts Options) (*locker.Client, func(), error) {
			return ProvideRedlock([]redis.UniversalClient{nowhere(t), nowhere(t), nowhere(t)}, opts)
		},
	} {
		l, release, err := provide(Options{locker.WithPrefix("app:")})
		require.NoError(t, err, name)
		if name != "redlock" {
			lease, err := l.TryLock(ctx, name)
			require.NoError(t, err, name)
			require.NoError(t, lease.Unlock(ctx), name)
		}
		release()
		_, err = l.TryLock(ctx, name)
		require.ErrorIs(t, err, locker.ErrClosed, name)
		_, _, err = provide(Options{locker.WithPrefix("\xff")})
		require.ErrorIs(t, err, locker.ErrInvalid, name)
	}
}

// nowhere returns a client of a server that cannot be reached.
func nowhere(t *testing.T) redis.UniversalClient {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

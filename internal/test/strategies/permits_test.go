package strategies

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/internal/test/redistest"
	"github.com/distlock/locker/strategy/blpop"
	"github.com/distlock/locker/strategy/hashreentrant"
	"github.com/distlock/locker/strategy/setnx"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// Strategies share the permits of a key, and a plain Lock of each gets in though the permits are busy.
func TestStrategiesSharePermits(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client(t)
	const permits = 3
	var inside atomic.Int32
	var stop atomic.Bool
	var wg sync.WaitGroup
	for _, newLocker := range []func(redis.UniversalClient, ...locker.Option) (*locker.Client, error){setnx.New, hashreentrant.New} {
		s, err := locker.NewSemaphore(openOn(t, rdb, "shared", newLocker), "k", permits)
		require.NoError(t, err)
		for range 4 {
			wg.Go(func() {
				for !stop.Load() {
					lease, err := s.Acquire(t.Context())
					if err != nil {
						t.Error(err)
						return
					}
					if n := inside.Add(1); n > permits {
						t.Errorf("%d are inside", n)
					}
					time.Sleep(2 * time.Millisecond) // the section, so that the permits are busy
					inside.Add(-1)
					unlockIn(t, lease)
				}
			})
		}
	}
	for name, newLocker := range map[string]func(redis.UniversalClient, ...locker.Option) (*locker.Client, error){
		"setnx": setnx.New, "hashreentrant": hashreentrant.New, "blpop": blpop.New,
	} {
		l := openOn(t, rdb, "shared", newLocker)
		for range 2 {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			lease, err := l.Lock(ctx, "k")
			cancel()
			require.NoError(t, err, name)
			if n := inside.Load(); n > 0 {
				t.Errorf("%s: %d permits are out beside the lock", name, n)
			}
			unlockIn(t, lease)
		}
	}
	stop.Store(true)
	wg.Wait()
	left, err := rdb.Keys(t.Context(), "*").Result()
	require.NoError(t, err)
	for _, key := range left {
		require.Contains(t, key, "locker:fence:", "nothing else is left")
	}
}

// The name of a permit's owner is kept as it is, whatever its bytes.
func TestPermitOwnersKeepTheirBytes(t *testing.T) {
	for name, newLocker := range onOneRedis {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l, err := newLocker(redistest.Shared(t).Client(t), locker.WithPrefix(t.Name()+":"))
			require.NoError(t, err)
			defer l.Close()
			permits, err := locker.NewSemaphore(l, "k", 2)
			require.NoError(t, err)
			const owner = "a\x00b %s"
			lease, err := permits.Acquire(locker.ContextWithOwner(t.Context(), owner))
			require.NoError(t, err)
			var owners []string
			for h, err := range l.Permits(t.Context(), "k") {
				require.NoError(t, err)
				owners = append(owners, h.Owner)
			}
			require.Equal(t, []string{owner}, owners)
			require.NoError(t, lease.Unlock(t.Context()))
		})
	}
}

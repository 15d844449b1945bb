package strategies

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/conformance/faultproxy"
	"github.com/distlock/locker/internal/test/redistest"
	"github.com/distlock/locker/strategy/blpop"
	"github.com/distlock/locker/strategy/hashreentrant"
	"github.com/distlock/locker/strategy/memory"
	"github.com/distlock/locker/strategy/setnx"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

var onRedis3 = map[string]func(redis.UniversalClient, ...locker.Option) (*locker.Client, error){
	"setnx": setnx.New, "hashreentrant": hashreentrant.New, "blpop": blpop.New,
}

// TestLockAllFarAway: twenty keys on a server that is far away take a few round trips, not
// twenty.
func TestLockAllFarAway(t *testing.T) {
	t.Parallel()
	const far = 250 * time.Millisecond
	for name, newLocker := range onRedis3 {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			proxy := faultproxy.Start(t, server.Addr())
			rdb := redis.NewClient(&redis.Options{Addr: proxy.Addr()})
			t.Cleanup(func() { _ = rdb.Close() })
			l, err := newLocker(rdb)
			require.NoError(t, err)
			t.Cleanup(func() { _ = l.Close() })
			require.NoError(t, locker.Do(t.Context(), l, "warm", func(context.Context) error { return nil }))
			proxy.DelayReply(func([]string) bool { return true }, 0, far)
			var keys []string
			for i := range 20 {
				keys = append(keys, fmt.Sprint("k", i))
			}
			start := time.Now()
			all, err := locker.LockAll(t.Context(), l, keys)
			require.NoError(t, err)
			locked := time.Now()
			require.NoError(t, all.Unlock(t.Context()))
			t.Logf("LockAll %v, Unlock %v", locked.Sub(start), time.Since(locked))
			require.Less(t, time.Since(start), 10*far, "40 commands")
		})
	}
}

// TestLockAllOfProcesses: Lockers, as processes have them, that lock overlapping sets all come
// through, and exclude each other.
func TestLockAllOfProcesses(t *testing.T) {
	t.Parallel()
	store := memory.NewStore()
	open := map[string]func(t *testing.T) locker.Locker{
		"memory": func(t *testing.T) locker.Locker {
			l, err := store.New()
			require.NoError(t, err)
			return l
		},
	}
	rdb := redistest.Start(t).Client(t)
	for name, newLocker := range onRedis3 {
		open[name] = func(t *testing.T) locker.Locker {
			l, err := newLocker(rdb, locker.WithPrefix(name+":"))
			require.NoError(t, err)
			return l
		}
	}
	for name, open := range open {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var inside [4]atomic.Int32
			var wg sync.WaitGroup
			for i := range 8 {
				l := open(t)
				t.Cleanup(func() { _ = l.Close() })
				wg.Go(func() {
					for n := range 15 {
						first, second := (i+n)%4, (i*n+1)%4
						all, err := locker.LockAll(t.Context(), l, []string{fmt.Sprint(first), fmt.Sprint(second)})
						if err != nil {
							t.Error(err)
							return
						}
						for _, key := range all.Keys() {
							if n := inside[key[0]-'0'].Add(1); n != 1 {
								t.Errorf("%d are inside %s", n, key)
							}
						}
						for _, key := range all.Keys() {
							inside[key[0]-'0'].Add(-1)
						}
						if err := all.Unlock(t.Context()); err != nil {
							t.Error(err)
						}
					}
				})
			}
			wg.Wait()
		})
	}
}

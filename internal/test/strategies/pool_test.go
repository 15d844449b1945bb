package strategies

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/conformance/faultproxy"
	"github.com/distlock/locker/internal/test/redistest"
	"github.com/distlock/locker/strategy/blpop"
	"github.com/distlock/locker/strategy/hashreentrant"
	"github.com/distlock/locker/strategy/setnx"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

var onOneRedis = map[string]func(redis.UniversalClient, ...locker.Option) (*locker.Client, error){
	"setnx": setnx.New, "hashreentrant": hashreentrant.New, "blpop": blpop.New,
}

// wakes reports whether a release wakes the waiters of a strategy. Those of others poll.
func wakes(name string) bool { return name == "hashreentrant" || name == "blpop" && redistest.Blocks() }

// With a caller's pool of one connection and hundreds of waiters, unlocks and
// renewals go through (R18).
func TestPoolOfOne(t *testing.T) {
	for name, newLocker := range onOneRedis {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const n = 200
			srv := redistest.Start(t)
			holder, err := newLocker(srv.Client(t))
			require.NoError(t, err)
			defer holder.Close()
			opts := srv.Options()
			opts.PoolSize = 1
			narrow := redis.NewClient(opts)
			defer narrow.Close()
			l, err := newLocker(narrow, locker.WithRenewInterval(50*time.Millisecond))
			require.NoError(t, err)
			defer l.Close()

			ctx := t.Context()
			mine, err := l.Lock(ctx, "mine")
			require.NoError(t, err)
			var theirs []*locker.Lease
			for i := range n {
				lease, err := holder.Lock(ctx, fmt.Sprint("theirs:", i))
				require.NoError(t, err)
				theirs = append(theirs, lease)
			}
			var wg sync.WaitGroup
			for i := range n {
				wg.Go(func() {
					lease, err := l.Lock(ctx, fmt.Sprint("theirs:", i))
					if err != nil {
						t.Error(err)
						return
					}
					if err := lease.Unlock(ctx); err != nil {
						t.Error(err)
					}
				})
			}

			for range 3 {
				before := mine.Deadline()
				require.Eventually(t, func() bool { return mine.Deadline().After(before) }, 10*time.Second, time.Millisecond,
					"a held lease is renewed whatever waits")
			}
			began := time.Now()
			require.NoError(t, mine.Unlock(ctx))
			// The waiters hold nothing that an Unlock needs: a round trip, and slack
			// for a busy machine; the pool's own timeout would be 6 s.
			require.Less(t, time.Since(began), 2*time.Second)
			for _, lease := range theirs {
				require.NoError(t, lease.Unlock(ctx))
			}
			wg.Wait()
		})
	}
}

// A free lock costs one round trip to take and one to give back.
func TestCommandBudget(t *testing.T) {
	for name, newLocker := range onOneRedis {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			proxy := faultproxy.Start(t, redistest.Shared(t).Addr())
			rdb := redis.NewClient(&redis.Options{Addr: proxy.Addr()})
			defer rdb.Close()
			l, err := newLocker(rdb, locker.WithPrefix(t.Name()))
			require.NoError(t, err)
			defer l.Close()
			pair := func() {
				lease, err := l.Lock(t.Context(), "k")
				require.NoError(t, err)
				require.NoError(t, lease.Unlock(t.Context()))
			}
			pair() // the server learns the scripts
			proxy.ResetCounts()
			const n = 20
			for range n {
				pair()
			}
			require.Equal(t, 2*n, proxy.RoundTrips(), "round trips of %d pairs: %v", n, proxy.Commands())
		})
	}
}

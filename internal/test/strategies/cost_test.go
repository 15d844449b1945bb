package strategies

import (
	"context"
	"runtime"
	"testing"

	"github.com/distlock/locker"
	"github.com/distlock/locker/internal/test/redistest"
	"github.com/distlock/locker/strategy/blpop"
	"github.com/distlock/locker/strategy/hashreentrant"
	"github.com/distlock/locker/strategy/setnx"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// Lock and Unlock of a free key take at most 30 allocations and 2 KB.
func TestAllocations(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for name, open := range map[string]func(redis.UniversalClient, ...locker.Option) (*locker.Client, error){
		"setnx": setnx.New, "hashreentrant": hashreentrant.New, "blpop": blpop.New,
	} {
		l, err := open(redistest.Shared(t).Client(t))
		require.NoError(t, err)
		pair := func() {
			lease, err := l.Lock(ctx, "cost of "+name)
			if err != nil || lease.Unlock(ctx) != nil {
				t.Error("Lock or Unlock failed")
			}
		}
		for range 300 { // until connections and buffers are there
			pair()
		}
		const n = 1000
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range n {
			pair()
		}
		runtime.ReadMemStats(&after)
		allocs, bytes := (after.Mallocs-before.Mallocs)/n, (after.TotalAlloc-before.TotalAlloc)/n
		t.Logf("%s: %d allocations, %d bytes", name, allocs, bytes)
		require.LessOrEqual(t, float64(allocs), 30*costSlack, name)
		require.LessOrEqual(t, float64(bytes), 2048*costSlack, name)
		require.NoError(t, l.Close())
	}
}

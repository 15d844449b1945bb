package strategy_test

import (
	"context"
	"testing"

	"github.com/distlock/locker"
	"github.com/distlock/locker/internal/redistest"
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
	for name, open := range map[string]func(redis.UniversalClient, ...locker.Option) (locker.Locker, error){
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
		r := testing.Benchmark(func(b *testing.B) {
			for b.Loop() {
				pair()
			}
		})
		t.Logf("%s: %d allocations, %d bytes", name, r.AllocsPerOp(), r.AllocedBytesPerOp())
		require.LessOrEqual(t, float64(r.AllocsPerOp()), 30*costSlack, name)
		require.LessOrEqual(t, float64(r.AllocedBytesPerOp()), 2048*costSlack, name)
		require.NoError(t, l.Close())
	}
}

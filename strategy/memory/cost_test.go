package memory_test

import (
	"context"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/distlock/locker"
	"github.com/distlock/locker/driver"
	"github.com/distlock/locker/strategy/memory"
)

// Lock and Unlock of a free key take at most 20 allocations.
func TestAllocations(t *testing.T) {
	cancellable, cancel := context.WithCancel(context.Background())
	defer cancel()
	for name, ctx := range map[string]context.Context{"background": context.Background(), "cancellable": cancellable} {
		l := newLocker(t, memory.NewStore())
		allocs := testing.AllocsPerRun(1000, func() {
			lease, err := l.Lock(ctx, "k")
			if err != nil || lease.Unlock(ctx) != nil {
				t.Error("Lock or Unlock failed")
			}
		})
		require.LessOrEqual(t, allocs, 20.0, name)
	}
}

// counted notes how many goroutines there are while a command is under way.
type counted struct {
	driver.Driver
	most *int
}

func (d counted) Acquire(ctx context.Context, req driver.Request) (driver.Answer, error) {
	*d.most = max(*d.most, runtime.NumGoroutine())
	return d.Driver.Acquire(ctx, req)
}

func (d counted) Release(ctx context.Context, c driver.Claim) error {
	*d.most = max(*d.most, runtime.NumGoroutine())
	return d.Driver.Release(ctx, c)
}

// Lock and Unlock send their commands from the goroutine of their caller.
func TestNoGoroutines(t *testing.T) {
	cancellable, cancel := context.WithCancel(context.Background())
	defer cancel()
	for name, ctx := range map[string]context.Context{"background": context.Background(), "cancellable": cancellable} {
		most := 0
		l, err := locker.New(counted{memory.NewStore().Driver(), &most})
		require.NoError(t, err)
		before := runtime.NumGoroutine()
		for range 100 {
			lease, err := l.Lock(ctx, "k")
			require.NoError(t, err)
			require.NoError(t, lease.Unlock(ctx))
		}
		require.LessOrEqual(t, most, before, name)
		require.NoError(t, l.Close())
	}
}

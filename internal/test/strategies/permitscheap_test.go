package strategies

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/distlock/locker"
	"github.com/distlock/locker/internal/test/redistest"
)

// On Redis 400 callers of 500 free permits cost 400 scripts and 400 events, and so do their releases.
func TestFreePermitsAreCheap(t *testing.T) {
	t.Parallel()
	for name, newLocker := range onRedis3 {
		t.Run(name, func(t *testing.T) { freePermitsAreCheap(t, newLocker) })
	}
}

func freePermitsAreCheap(t *testing.T, newLocker func(redis.UniversalClient, ...locker.Option) (*locker.Client, error)) {
	t.Helper()
	const callers, limit = 400, 500
	rdb := redistest.Start(t).Client(t)
	var events atomic.Int64
	l, err := newLocker(rdb, locker.WithoutRenewal(), locker.WithObserver(locker.ObserverFunc(func(context.Context, locker.Event) { events.Add(1) })))
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	s, err := locker.NewSemaphore(l, "k", limit)
	require.NoError(t, err)
	first, err := s.Acquire(t.Context()) // the server knows the scripts from now on
	require.NoError(t, err)
	require.NoError(t, first.Unlock(t.Context()))

	leases := make([]*locker.Lease, callers)
	cost := func(what string, f func(i int) error) {
		require.NoError(t, rdb.ConfigResetStat(t.Context()).Err())
		before := events.Load()
		errs := make([]error, callers)
		var all sync.WaitGroup
		for i := range callers {
			all.Go(func() { errs[i] = f(i) })
		}
		all.Wait()
		for _, err := range errs {
			require.NoError(t, err)
		}
		scripts := 0
		for line := range strings.Lines(rdb.Info(t.Context(), "commandstats").Val()) {
			_, _ = fmt.Sscanf(line, "cmdstat_evalsha:calls=%d,", &scripts)
		}
		require.Equal(t, callers, scripts, what)
		require.Eventually(t, func() bool { return events.Load()-before == callers }, 10*time.Second, time.Millisecond, what) // they are reported in the background
	}
	cost("acquire", func(i int) (err error) { leases[i], err = s.Acquire(t.Context()); return err })
	free, err := s.Available(t.Context())
	require.NoError(t, err)
	require.Equal(t, limit-callers, free)
	cost("release", func(i int) error { return leases[i].Unlock(t.Context()) })
	free, err = s.Available(t.Context())
	require.NoError(t, err)
	require.Equal(t, limit, free)
	require.NoError(t, l.Close())
	require.EqualValues(t, 2*callers+2, events.Load(), "no event comes later")
}

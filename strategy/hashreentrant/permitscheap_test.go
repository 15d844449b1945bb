package hashreentrant_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/distlock/locker"
	"github.com/distlock/locker/internal/test/redistest"
	"github.com/distlock/locker/strategy/hashreentrant"
)

// On Redis 400 callers of 500 free permits cost 400 scripts and 400 events, and so do their releases.
func TestFreePermitsAreCheap(t *testing.T) {
	const callers, limit = 400, 500
	rdb := redistest.Start(t).Client(t)
	var events atomic.Int64
	l, err := hashreentrant.New(rdb, locker.WithoutRenewal(), locker.WithObserver(locker.ObserverFunc(func(context.Context, locker.Event) { events.Add(1) })))
	require.NoError(t, err)
	defer l.Close()
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
		require.EqualValues(t, callers, events.Load()-before, what)
	}
	cost("acquire", func(i int) (err error) { leases[i], err = s.Acquire(t.Context()); return err })
	free, err := s.Available(t.Context())
	require.NoError(t, err)
	require.Equal(t, limit-callers, free)
	cost("release", func(i int) error { return leases[i].Unlock(t.Context()) })
	free, err = s.Available(t.Context())
	require.NoError(t, err)
	require.Equal(t, limit, free)
}

package blpop_test

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/internal/redistest"
	"github.com/distlock/locker/strategy/blpop"
	"github.com/stretchr/testify/require"
)

// Four Lockers with four goroutines each want one key all the time: of 600 grants
// each Locker gets its quarter. First come, first served makes the shares equal but
// for the beginning and the end, and for a place lost now and then to an opening; the
// least of them is at least 0.8 of the greatest. (Turns are of five grants at most, so
// that there are enough of them.)
func TestFairShares(t *testing.T) {
	t.Parallel()
	const lockers, each, grants = 4, 4, 600
	srv := redistest.Start(t)
	var left atomic.Int64
	left.Store(grants)
	shares := make([]atomic.Int64, lockers)
	var all sync.WaitGroup
	for i := range lockers {
		l, err := blpop.New(srv.Client(t), locker.WithHandOver(4, 20*time.Millisecond))
		require.NoError(t, err)
		defer l.Close()
		for range each {
			all.Go(func() {
				for left.Load() > 0 {
					err := locker.Do(t.Context(), l, "k", func(context.Context) error {
						// When the last is through, those that still wait are not counted.
						if left.Add(-1) >= 0 {
							shares[i].Add(1)
						}
						time.Sleep(time.Millisecond) // the work
						return nil
					})
					if err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
	}
	all.Wait()
	got := make([]int64, lockers)
	for i := range shares {
		got[i] = shares[i].Load()
	}
	t.Logf("shares of %d: %v", grants, got)
	require.GreaterOrEqual(t, 10*slices.Min(got), 8*slices.Max(got), "shares %v", got)
}

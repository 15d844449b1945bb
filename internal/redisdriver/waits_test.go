package redisdriver

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/distlock/locker/driver"
	"github.com/distlock/locker/internal/bound"
	"github.com/stretchr/testify/require"
)

// Callers of one lane end at their own deadlines, in whatever order they came, by their
// contexts and by the end of the Locker; those of a Locker that is closed do not wait.
func TestWaitsEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l, silent, start := &lane{}, make(chan struct{}), time.Now()
		life, closeLocker := context.WithCancel(t.Context())
		parent, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		ends := func(want error, at time.Duration, ctx context.Context) {
			wg.Go(func() {
				f := &flight{done: make(chan struct{}, 1), run: func() (any, error) { <-silent; return nil, nil }}
				left, err := l.do(ctx, f)
				require.ErrorIs(t, err, want)
				require.True(t, left)
				require.True(t, driver.MaybeApplied(err))
				require.Equal(t, at, time.Since(start))
				<-f.over
			})
			synctest.Wait()
		}
		for _, d := range []time.Duration{4, 2, 3, 5, 1, 4} {
			ends(context.DeadlineExceeded, d*time.Second, bound.New(context.Background(), d*time.Second, nil))
		}
		ends(context.Canceled, 2500*time.Millisecond, bound.New(parent, time.Hour, life))
		ends(context.Canceled, 3500*time.Millisecond, bound.New(context.Background(), time.Hour, life))
		ends(context.DeadlineExceeded, time.Second, bound.New(context.Background(), time.Second, life))
		time.Sleep(2500 * time.Millisecond) // on the bubble's clock
		cancel()
		time.Sleep(time.Second) // on the bubble's clock
		closeLocker()
		synctest.Wait()
		ends(context.Canceled, 3500*time.Millisecond, bound.New(context.Background(), time.Hour, life))
		time.Sleep(10 * time.Second) // on the bubble's clock
		ends(context.DeadlineExceeded, 13500*time.Millisecond+time.Minute, bound.New(context.Background(), time.Minute, nil))
		time.Sleep(time.Hour) // on the bubble's clock
		close(silent)
		wg.Wait()
		require.Nil(t, l.waits.first)
		require.Nil(t, l.waits.last)
	})
}

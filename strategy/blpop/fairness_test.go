package blpop_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/internal/test/redistest"
	"github.com/distlock/locker/strategy/blpop"
	"github.com/stretchr/testify/require"
)

// Four Lockers with four goroutines each want one key all the time: their turns go round.
// A turn is the grants that follow one another in a Locker: five at most, by WithHandOver.
// A holder goes on only when the three other Lockers are in the store's queue, so the
// order of turns does not depend on how fast the machine is. An opening for clients that
// the queue does not know of, every two seconds at most, may cost a Locker its place.
func TestFairShares(t *testing.T) {
	t.Parallel()
	const lockers, each, rounds = 4, 4, 30
	srv := redistest.Start(t)
	began := time.Now()
	var (
		mu     sync.Mutex
		turns  []int // the Lockers, in the order of their turns
		grants [lockers]int
		all    sync.WaitGroup
	)
	granted := func(locker int) (done bool) {
		mu.Lock()
		defer mu.Unlock()
		grants[locker]++
		if len(turns) == 0 || turns[len(turns)-1] != locker {
			turns = append(turns, locker)
		}
		return len(turns) >= lockers*rounds
	}
	ctx, done := context.WithCancel(t.Context())
	defer done()
	for i := range lockers {
		l, err := blpop.New(srv.Client(t), locker.WithHandOver(4, time.Second))
		require.NoError(t, err)
		defer l.Close()
		for range each {
			all.Go(func() {
				for ctx.Err() == nil {
					err := locker.Do(ctx, l, "k", func(ctx context.Context) error {
						if granted(i) {
							done()
						}
						return othersQueue(ctx, l, lockers-1)
					})
					if err != nil && ctx.Err() == nil {
						t.Error(err)
						done()
					}
				}
			})
		}
	}
	all.Wait()
	t.Logf("grants %v in %d turns", grants, len(turns))
	if t.Failed() {
		return
	}
	openings := 1 + int(time.Since(began)/(2*time.Second))
	require.LessOrEqual(t, passed(turns, lockers), (lockers-1)*openings, "turns %v", turns)
}

// passed returns how many turns were given out of turn: while a Locker that waited had seen
// each of the others have one.
func passed(turns []int, lockers int) int {
	n, last := 0, make([]int, lockers)
	for i := range last {
		last[i] = -1
	}
	for at, turn := range turns {
		n += max(0, at-last[turn]-lockers)
		last[turn] = at
	}
	for _, at := range last { // it may have had none since
		n += max(0, len(turns)-at-lockers)
	}
	return n
}

// othersQueue returns once n processes wait for "k" in the store's queue, or ctx ends.
func othersQueue(ctx context.Context, a *locker.Client, n int) error {
	for ctx.Err() == nil {
		h, err := a.Inspect(ctx, "k")
		if err != nil {
			return err
		}
		if h.Waiting >= n {
			return nil
		}
	}
	return ctx.Err()
}

package redisdriver

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/distlock/locker"
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

// endless is a context whose Deadline passes without its ending.
type endless struct{ context.Context }

func (endless) Done() <-chan struct{} { return nil }
func (endless) Err() error            { return nil }

// The Deadline of a caller's context is not the end of it: a context that was detached may
// have kept one, and that of any other is told of by its Done.
func TestDeadlineIsNoEnd(t *testing.T) {
	t.Parallel()
	for name, open := range ways {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := open(t)
			over, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
			defer cancel()
			require.NoError(t, l.acquire(bound.New(endless{over}, time.Minute, nil)))

			rule := l.proxy.Delay(anyScript, 100, time.Hour)
			defer rule.Stop()
			for n := range 20 { // of other claims, since each is left behind
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
				id := fmt.Sprint(n)
				err := l.Release(bound.New(ctx, time.Minute, nil), driver.Claim{Key: id, ID: id, Owner: id, TTL: time.Minute})
				require.ErrorIs(t, err, context.DeadlineExceeded)
				require.Error(t, ctx.Err(), "the call ends with its context, not before")
				cancel()
			}
		})
	}
}

// slowErr is a context of a type of the user's, which says that it has ended, and why later.
type slowErr struct {
	context.Context
	done, asked, told chan struct{}
}

func (c slowErr) Done() <-chan struct{} { return c.done }

func (c slowErr) Err() error {
	select {
	case <-c.done:
		select {
		case c.asked <- struct{}{}:
		default:
		}
		<-c.told
		return context.Canceled
	default:
		return nil
	}
}

// A caller's context that does not say why it has ended holds up no other caller.
func TestSlowContext(t *testing.T) {
	t.Parallel()
	l := newLeaver(t, false)
	l.withoutDirect()
	ctx := slowErr{t.Context(), make(chan struct{}), make(chan struct{}, 1), make(chan struct{})}
	rule := l.proxy.Delay(anyScript, 1, time.Hour)
	defer rule.Stop()
	slow := l.begin(ctx, l.acquire)
	l.wait(t, rule.Done(), "the command is on its way")
	close(ctx.done)
	l.wait(t, ctx.asked, "the context is asked why it has ended")
	other := driver.Claim{Key: "other", ID: "other", Owner: "other", TTL: time.Minute}
	require.ErrorIs(t, l.ends(t, l.begin(t.Context(), func(ctx context.Context) error { return l.Release(ctx, other) })), locker.ErrLost)
	close(ctx.told)
	require.ErrorIs(t, l.ends(t, slow), context.Canceled)
}

// Thousands of callers leave a queue in a time that grows with their number, not with its square;
// a batch takes those that are left.
func TestThousandsLeaveTheQueue(t *testing.T) {
	t.Parallel()
	const n = 1000
	few, many := leaving(t, n), leaving(t, 16*n)
	for range 4 { // the shortest of several is the least disturbed
		few, many = min(few, leaving(t, n)), min(many, leaving(t, 16*n))
	}
	require.Less(t, many, 64*few, "16 times as many take 16 times as long, or 256 times if the time grows with the square")
}

// leaving returns how long all but one of n callers take to leave a queue.
func leaving(t *testing.T, n int) time.Duration {
	l := &lane{busy: make([]*worker, mostBatches)} // no other batch may be sent
	for i := range l.busy {
		l.busy[i] = &worker{lane: l}
	}
	flights := make([]*flight, n)
	for i := range flights {
		flights[i] = newFlight(nil)
		l.start(t.Context(), flights[i])
	}
	began := time.Now()
	for i, f := range flights {
		if i != n/2 {
			l.mu.Lock()
			l.leave(f, context.Canceled)
			l.mu.Unlock()
		}
	}
	took := time.Since(began)
	require.False(t, l.idle())
	w := l.busy[0]
	require.True(t, w.take())
	require.Equal(t, []*flight{flights[n/2]}, w.batch)
	require.Zero(t, l.queued())
	return took
}

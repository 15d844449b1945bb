package redisconn

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/distlock/locker/internal/bound"
	"github.com/stretchr/testify/require"
)

// Callers of one pipeline end at their own deadlines, in whatever order they came, by their
// contexts and by the end of the Locker; those of a Locker that is closed do not wait.
func TestWaitsEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l, silent, start := &pipeline{}, make(chan struct{}), time.Now()
		life, closeLocker := context.WithCancel(t.Context())
		parent, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		ends := func(want error, at time.Duration, ctx context.Context) {
			wg.Go(func() {
				f := &Command{done: make(chan struct{}, 1), run: func() (any, error) { <-silent; return nil, nil }}
				err := l.do(ctx, f)
				require.ErrorIs(t, err, want)
				require.True(t, f.Abandoned())
				require.True(t, maybeApplied(err))
				require.Equal(t, at, time.Since(start))
				<-f.resolved
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
		require.Empty(t, l.waiters.commands)
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
				err := l.Release(bound.New(ctx, time.Minute, nil), claim{id, id})
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
	l := newProxied(t, false)
	l.withoutFastPath()
	ctx := slowErr{t.Context(), make(chan struct{}), make(chan struct{}, 1), make(chan struct{})}
	rule := l.proxy.Delay(anyScript, 1, time.Hour)
	defer rule.Stop()
	slow := l.begin(ctx, l.acquire)
	l.wait(t, rule.Done(), "the command is on its way")
	close(ctx.done)
	l.wait(t, ctx.asked, "the context is asked why it has ended")
	other := claim{"other", "other"}
	require.ErrorIs(t, l.ends(t, l.begin(t.Context(), func(ctx context.Context) error { return l.Release(ctx, other) })), errNotHeld)
	close(ctx.told)
	require.ErrorIs(t, l.ends(t, slow), context.Canceled)
}

// Thousands of callers leave a queue in a time that grows with their number, not with its square;
// a batch takes those that are left.
func TestThousandsLeaveTheQueue(t *testing.T) {
	t.Parallel()
	const n = 40_000
	l := &pipeline{busy: make([]*worker, mostBatches)} // no other batch may be sent
	for i := range l.busy {
		l.busy[i] = &worker{pipeline: l}
	}
	commands := make([]*Command, n)
	for i := range commands {
		commands[i] = newCommand(nil)
		l.start(t.Context(), commands[i])
	}
	began := time.Now()
	for i, f := range commands {
		if i != n/2 {
			l.mu.Lock()
			l.abandon(f, context.Canceled)
			l.mu.Unlock()
		}
	}
	require.Less(t, time.Since(began), 4*time.Second)
	require.False(t, l.isIdle())
	w := l.busy[0]
	require.True(t, w.takeBatch())
	require.Equal(t, []*Command{commands[n/2]}, w.batch)
	require.Zero(t, l.queued())
}

package leader_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/distlock/locker"
	"github.com/distlock/locker/adapters/leader"
	"github.com/distlock/locker/conformance"
	"github.com/distlock/locker/strategy/memory"
)

const key = "leader"

func newLocker(t *testing.T, s *memory.Store, opts ...locker.Option) locker.Locker {
	t.Helper()
	l, err := s.New(opts...)
	require.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	return l
}

// campaign is a Run in a goroutine.
type campaign struct {
	*leader.Elector
	ended chan error
}

func stand(t *testing.T, ctx context.Context, l locker.Locker, lead leader.Func, opts ...leader.Option) campaign {
	t.Helper()
	e, err := leader.New(l, key, opts...)
	require.NoError(t, err)
	c := campaign{e, make(chan error, 1)}
	go func() { c.ended <- e.Run(ctx, lead) }()
	return c
}

func untilEnd(ctx context.Context, _ int64) error {
	<-ctx.Done()
	return nil
}

// terms are the events of a candidate.
type terms struct {
	mu   sync.Mutex
	seen []leader.Event
}

func (o *terms) observe(e leader.Event) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.seen = append(o.seen, e)
}

func (o *terms) kinds() (kinds []leader.Kind) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, e := range o.seen {
		kinds = append(kinds, e.Kind)
	}
	return kinds
}

func TestOneLeads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		ctx, stop := context.WithCancel(t.Context())
		first := stand(t, ctx, newLocker(t, store), untilEnd)
		synctest.Wait()
		second := stand(t, t.Context(), newLocker(t, store, locker.WithWait(time.Second)), untilEnd)

		time.Sleep(time.Hour) // on the bubble's clock: many TTLs
		require.True(t, first.IsLeader())
		require.False(t, second.IsLeader())
		require.Zero(t, second.Token())
		token := first.Token()
		require.Positive(t, token)

		stop()
		require.ErrorIs(t, <-first.ended, context.Canceled)
		synctest.Wait()
		require.False(t, first.IsLeader())
		require.True(t, second.IsLeader())
		require.Greater(t, second.Token(), token)
	})
}

// The end of the context is the end of the leadership, but not before the function
// has returned.
func TestStepsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, why := memory.NewStore(), errors.New("deploy")
		ctx, stop := context.WithCancelCause(t.Context())
		c := stand(t, ctx, newLocker(t, store), func(ctx context.Context, _ int64) error {
			<-ctx.Done()
			time.Sleep(time.Minute) // longer than the TTL
			return errors.New("not of interest any more")
		})
		synctest.Wait()
		stop(why)
		time.Sleep(59 * time.Second) // on the bubble's clock: a second before the function returns
		require.Equal(t, []string{key}, store.Keys(), "the lock was given back while the function ran")
		require.True(t, c.IsLeader())
		require.Equal(t, why, <-c.ended)
		require.Empty(t, store.Keys())
	})
}

func TestLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		var seen terms
		causes := make(chan error, 9)
		first := stand(t, t.Context(), newLocker(t, store), func(ctx context.Context, _ int64) error {
			<-ctx.Done()
			causes <- context.Cause(ctx)
			return nil // which does not mean that it resigns
		}, leader.WithObserver(seen.observe))
		synctest.Wait()
		token := first.Token()
		store.Break(key)
		second := stand(t, t.Context(), newLocker(t, store), untilEnd)

		time.Sleep(time.Hour) // on the bubble's clock: longer than the pause
		require.ErrorIs(t, <-causes, locker.ErrLost)
		require.Equal(t, []leader.Kind{leader.Elected, leader.Ended}, seen.kinds())
		require.ErrorIs(t, seen.seen[1].Err, locker.ErrLost)
		require.Equal(t, token, seen.seen[1].Token)
		require.False(t, first.IsLeader())
		require.True(t, second.IsLeader())
		require.Greater(t, second.Token(), token)

		store.Break(key)      // and back: the first stands again
		time.Sleep(time.Hour) // on the bubble's clock: longer than the pause
		require.NotEqual(t, first.IsLeader(), second.IsLeader())
	})
}

func TestResigns(t *testing.T) {
	store := memory.NewStore()
	l := newLocker(t, store)
	require.NoError(t, leader.Run(t.Context(), l, key, func(ctx context.Context, token int64) error {
		require.Positive(t, token)
		lease, ok := locker.LeaseFromContext(ctx)
		require.True(t, ok)
		require.Equal(t, lease.Token(), token)
		return nil
	}))
	require.Empty(t, store.Keys())
}

// A loss that shows only when the lock is given back is one, too: the candidate stands again.
func TestLossThatUnlockShows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, ran := memory.NewStore(), 0
		var seen terms
		c := stand(t, t.Context(), newLocker(t, store), func(context.Context, int64) error {
			if ran++; ran == 1 {
				store.Break(key)
			}
			return nil
		}, leader.WithObserver(seen.observe))
		require.NoError(t, <-c.ended)
		require.Equal(t, 2, ran)
		require.ErrorIs(t, seen.seen[1].Err, locker.ErrLost)
		require.EqualValues(t, 1, c.Stats().Lost)
	})
}

// A limit that comes while the lock of a function that has returned is kept for the shortest term is no loss.
func TestResignsBeforeALimit(t *testing.T) {
	for name, limit := range map[string]locker.LockOption{
		"MaxHold": locker.WithMaxHold(100 * time.Millisecond), "MaxRenewals": locker.WithMaxRenewals(1),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, ran := memory.NewStore(), 0
				var seen terms
				ctx, stop := context.WithTimeout(t.Context(), time.Minute) // else it could run for ever
				defer stop()
				c := stand(t, ctx, newLocker(t, store), func(context.Context, int64) error { ran++; return nil },
					leader.WithObserver(seen.observe), leader.WithLockOptions(locker.WithTTL(300*time.Millisecond), limit))
				require.NoError(t, <-c.ended)
				require.Equal(t, 1, ran)
				require.Empty(t, store.Keys())
				require.NoError(t, seen.seen[1].Err)
				require.Zero(t, c.Stats().Lost)
			})
		})
	}
}

// A term that its limit has ended is no failure: the next term begins without a longer pause.
func TestLimitIsNoFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, limit := memory.NewStore(), leader.WithLockOptions(locker.WithMaxHold(10*time.Second))
		first := stand(t, t.Context(), newLocker(t, store), untilEnd, limit)
		second := stand(t, t.Context(), newLocker(t, store), untilEnd, limit)
		time.Sleep(10 * time.Minute) // on the bubble's clock: sixty terms
		require.Greater(t, first.Stats().Led+second.Stats().Led, 9*time.Minute)
	})
}

// The Elector reports a loss to its callers before the function has returned.
func TestLossWhileTheFunctionIsBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		busy := make(chan struct{})
		c := stand(t, t.Context(), newLocker(t, store), func(context.Context, int64) error {
			<-busy
			return nil
		})
		synctest.Wait()
		require.True(t, c.IsLeader())
		store.Break(key)
		time.Sleep(time.Minute) // on the bubble's clock: the loss is known
		require.False(t, c.IsLeader())
		require.Zero(t, c.Token())
		close(busy)
	})
}

// After an error another candidate has its turn, and the pause grows.
func TestBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		var seen terms
		var at []time.Time
		c := stand(t, t.Context(), newLocker(t, store), func(context.Context, int64) error {
			at = append(at, time.Now())
			if len(at) == 6 {
				time.Sleep(9 * time.Second) // a long term
			}
			if len(at) == 8 {
				return nil
			}
			return context.DeadlineExceeded
		}, leader.WithBackoff(time.Second, 8*time.Second), leader.WithObserver(seen.observe), leader.WithMinTerm(10*time.Millisecond))
		require.NoError(t, <-c.ended)
		require.ErrorIs(t, seen.seen[1].Err, context.DeadlineExceeded)
		require.Len(t, seen.kinds(), 16)

		for i, most := range []time.Duration{1, 2, 4, 8, 8, 9 + 1, 2} {
			most *= time.Second
			least := most / 2
			if i == 5 {
				least = 9*time.Second + time.Second/2
			}
			most += 10 * time.Millisecond // the shortest term comes before the pause
			pause := at[i+1].Sub(at[i])
			require.GreaterOrEqual(t, pause, least, "pause %d", i)
			require.LessOrEqual(t, pause, most, "pause %d", i)
		}
	})
}

func TestEndsInThePause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		c := stand(t, ctx, newLocker(t, memory.NewStore()), func(context.Context, int64) error { return errors.New("no") })
		time.Sleep(700 * time.Millisecond) // the shortest term is over
		began := time.Now()
		stop()
		require.ErrorIs(t, <-c.ended, context.Canceled)
		require.Zero(t, time.Since(began))
	})
}

func TestPanic(t *testing.T) {
	store := memory.NewStore()
	var seen terms
	e, err := leader.New(newLocker(t, store), key, leader.WithObserver(seen.observe))
	require.NoError(t, err)
	require.PanicsWithValue(t, "oh", func() {
		_ = e.Run(t.Context(), func(context.Context, int64) error { panic("oh") })
	})
	require.Empty(t, store.Keys())
	require.False(t, e.IsLeader())
	require.Error(t, seen.seen[1].Err)
	require.NoError(t, e.Run(t.Context(), func(context.Context, int64) error { return nil }), "a panic left it standing")
}

func TestOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var faults conformance.Injector
		require.NoError(t, faults.Refuse())
		l, err := locker.New(faults.Wrap(memory.NewStore().Driver()))
		require.NoError(t, err)
		defer l.Close()
		var seen terms
		ctx, stop := context.WithCancel(t.Context())
		c := stand(t, ctx, l, untilEnd, leader.WithObserver(seen.observe))

		time.Sleep(5 * time.Minute) // on the bubble's clock: many attempts
		require.False(t, c.IsLeader())
		require.Contains(t, seen.kinds(), leader.Failed)
		require.NotContains(t, seen.kinds(), leader.Elected)
		require.ErrorIs(t, seen.seen[0].Err, locker.ErrUnavailable)

		require.NoError(t, faults.Heal())
		time.Sleep(time.Minute) // on the bubble's clock: longer than the pause
		require.True(t, c.IsLeader())
		stop()
		require.ErrorIs(t, <-c.ended, context.Canceled)
	})
}

func TestClosedLocker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLocker(t, memory.NewStore())
		leads := stand(t, t.Context(), l, untilEnd)
		synctest.Wait()
		waits := stand(t, t.Context(), l, untilEnd)
		synctest.Wait()
		began := time.Now()
		require.NoError(t, l.Close())
		require.ErrorIs(t, <-waits.ended, locker.ErrClosed)
		require.ErrorIs(t, <-leads.ended, locker.ErrClosed)
		require.Zero(t, time.Since(began), "there is nothing to pause for")
	})
}

func TestMisuse(t *testing.T) {
	var none context.Context
	l := newLocker(t, memory.NewStore())
	for name, err := range map[string]error{
		"no Locker":   leader.Run(t.Context(), nil, key, untilEnd),
		"no key":      leader.Run(t.Context(), l, "", untilEnd),
		"no function": leader.Run(t.Context(), l, key, nil),
		"no context":  leader.Run(none, l, key, untilEnd),
		"nil option":  leader.Run(t.Context(), l, key, untilEnd, nil),
		"observer":    leader.Run(t.Context(), l, key, untilEnd, leader.WithObserver(nil)),
		"backoff":     leader.Run(t.Context(), l, key, untilEnd, leader.WithBackoff(time.Second, 0)),
		"name":        leader.Run(t.Context(), l, key, untilEnd, leader.WithIdentity("", "x")),
		"payload":     leader.Run(t.Context(), l, key, untilEnd, leader.WithIdentity("x", strings.Repeat("x", 512))),
		"term":        leader.Run(t.Context(), l, key, untilEnd, leader.WithMinTerm(0)),
		"zero":        new(leader.Elector).Run(t.Context(), untilEnd),
		"TTL":         leader.Run(t.Context(), l, key, untilEnd, leader.WithLockOptions(locker.WithTTL(0))),
	} {
		require.ErrorIs(t, err, locker.ErrInvalid, name)
	}
}

func TestOneRunAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := stand(t, t.Context(), newLocker(t, memory.NewStore()), untilEnd)
		synctest.Wait()
		require.ErrorIs(t, c.Run(t.Context(), untilEnd), locker.ErrInvalid)
		require.True(t, c.IsLeader())
	})
}

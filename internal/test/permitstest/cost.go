package permitstest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/distlock/locker"
	"github.com/distlock/locker/driver"
	"github.com/distlock/locker/internal/test/pace"
)

// 400 callers of 500 free permits cost 400 statements and 400 events, once the Locker has had as many permits at once
// before. 400 releases cost 400 statements, and some more in a store whose releases delete old rows at times.
func freeOnesAreCheap(t *test) {
	const callers, limit = 400, 500
	d, statements := t.k.Start(t.T).Counted(t.T, 8)
	var events atomic.Int64
	sem := semaphore(t, open(t, d, locker.WithoutRenewal(), locker.WithTTL(time.Hour),
		locker.WithObserver(locker.ObserverFunc(func(context.Context, locker.Event) { events.Add(1) }))), limit)
	leases := make([]*locker.Lease, callers)
	// spent returns how many statements f costs for all callers, so many of them at once.
	spent := func(together int, f func(i int) error) int {
		t.Helper()
		sent, before := statements(), events.Load()
		errs := make([]error, callers)
		var all sync.WaitGroup
		for first := range together {
			all.Go(func() {
				for i := first; i < callers; i += together {
					errs[i] = f(i)
				}
			})
		}
		all.Wait()
		require.NoError(t, errors.Join(errs...))
		pace.Eventually(t, 20*time.Second, "the events have come", func() bool { return events.Load() >= before+callers })
		require.Equal(t, before+callers, events.Load())
		return statements() - sent
	}
	available := func(want int) {
		t.Helper()
		free, err := sem.Available(t.Context())
		require.NoError(t, err)
		require.Equal(t, want, free)
	}
	acquire := func(i int) (err error) { leases[i], err = sem.Acquire(t.Context()); return err }
	release := func(i int) error { return leases[i].Unlock(t.Context()) }
	first := spent(callers, acquire)
	t.Logf("the first %d permits cost %d statements", callers, first)
	require.LessOrEqual(t, first, t.k.First[1]*callers+100, "the first few find no table and no head")
	spent(4, release)
	require.Equal(t, callers, spent(callers, acquire))
	available(limit - callers)
	n := spent(4, release)
	t.Logf("%d releases cost %d statements", callers, n)
	if t.k.Sweeps { // a release sweeps at times: three statements in each of some 16
		require.LessOrEqual(t, n, 2*callers)
		n = callers
	}
	require.Equal(t, callers, n)
	available(limit)
}

// The first permit of a key may cost more than the next ones, and a refusal more than the next ones.
func firstOnesCost(t *test) {
	d, statements := t.k.Start(t.T).Counted(t.T, 1)
	other := claim(IDOf(0), time.Minute, 1, 9)
	other.Key = "other"
	require.True(t, take(t, d, other).Granted) // makes the tables
	cost := func(want int, granted bool, c driver.Claim) {
		t.Helper()
		sent := statements()
		a := take(t, d, c)
		require.Equal(t, granted, a.Granted)
		require.Equal(t, granted, a.Token > 0)
		require.Equal(t, want, statements()-sent)
	}
	first := claim(IDOf(1), time.Minute, 1, 9)
	cost(t.k.First[0], true, first)
	cost(t.k.First[1], true, claim(IDOf(2), time.Minute, 1, 9))
	sent := statements()
	require.NoError(t, d.Release(t.Context(), first))
	if !t.k.Sweeps {
		require.Equal(t, 1, statements()-sent)
	}
	cost(t.k.First[2], true, claim(IDOf(3), time.Minute, 1, 9))
	cost(t.k.Refused[0], false, claim(IDOf(4), time.Minute, 9, 9))
	cost(t.k.Refused[1], false, claim(IDOf(5), time.Minute, 9, 9))
}

// No command reads more rows with 10,000 permits out than with 9: what is out is not counted.
func costDoesNotGrow(t *test) {
	const times, limit = 50, 20_000
	s, ctx := t.k.Start(t.T, t.k.Still...), t.Context()
	first, n := s.Driver(t.T, 0), 0
	for i := range 9 {
		require.True(t, take(t, first, claim(IDOf(i), time.Hour, 1, limit)).Granted)
	}
	reads := func() float64 {
		t.Helper()
		return s.Reads(t.T, func(d driver.Driver) {
			for range times {
				n++
				c := claim(ofOther(n), time.Minute, 1, limit)
				require.True(t, take(t, d, c).Granted)
				for _, claims := range [][]driver.Claim{{c}, {c, claim(IDOf(1), time.Hour, 1, limit)}} {
					d.Renew(ctx, claims, func(_ int, err error) { require.NoError(t, err) })
				}
				require.False(t, take(t, d, claim(ofThird(1), time.Minute, limit, limit)).Granted)
				require.False(t, waits(t, d, claim(ofThird(2), time.Minute, limit, limit), time.Minute).Granted)
				require.False(t, take(t, d, claim(ofThird(3), time.Minute, 0, 0)).Granted)
				_ = out(t, d)
				require.NoError(t, d.Release(ctx, c))
				require.ErrorIs(t, d.Release(ctx, c), driver.ErrLost)
				require.ErrorIs(t, d.Release(ctx, claim(ofThird(2), time.Minute, limit, limit)), driver.ErrLost)
			}
		}) / times
	}
	few := reads()
	admin(t, s, t.k.Fill)
	require.Greater(t, out(t, first), 9_000)
	most := reads()
	t.Logf("ten commands read %.0f rows with 9 permits out, and %.0f with 10,000", few, most)
	require.Less(t, most, 3*few, "of 10,000 rows")
}

// Bench measures pairs of an Acquire and a Release: of a lock, and of a permit beside others that are out.
func Bench(b *testing.B, k Kind) {
	b.Helper()
	for _, others := range []int{-1, 0, 9, 10_000} {
		name := fmt.Sprintf("beside%d", others)
		if others < 0 {
			name = "lock"
		}
		b.Run(name, func(b *testing.B) {
			s, ctx, n := k.Start(b), context.Background(), 0
			d := s.Driver(b, 4)
			pair := func(c driver.Claim) {
				a, err := d.Acquire(ctx, driver.Request{Claim: c, Fencing: true})
				if err == nil && a.Granted && c.TTL == time.Minute {
					c.Token = a.Token
					err = d.Release(ctx, c)
				}
				if err != nil || !a.Granted {
					b.Fatal(a, err)
				}
			}
			for i := range others {
				pair(claim(IDOf(i), time.Hour, 1, 100_000))
			}
			worked, least := s.CPU(), time.Hour
			for b.Loop() {
				n++
				c := claim(ofOther(n), time.Minute, 1, 100_000)
				if others < 0 {
					c.Permits, c.Limit = 0, 0
				}
				began := time.Now()
				pair(c)
				least = min(least, time.Since(began))
			}
			b.ReportMetric(float64(least.Microseconds()), "least-µs") // it depends little on what else the machine does
			b.ReportMetric(float64((s.CPU()-worked).Microseconds())/float64(b.N), "server-µs/op")
		})
	}
}

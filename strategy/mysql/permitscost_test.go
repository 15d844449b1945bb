package mysql_test

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
	lockmysql "github.com/distlock/locker/strategy/mysql"
)

// statements returns the number of statements that the server has got, without the one that asks for it.
func (s *server) statements(t *testing.T) int {
	t.Helper()
	return int(s.status(t, "Questions"))
}

// 400 callers of 500 free permits cost 400 statements and 400 events, once the Locker has had as many permits at once
// before. The first time the rows of their claims cost a statement each. 400 releases cost 400 statements and 400
// events, and the sweeps of some.
func TestFreePermitsAreCheap(t *testing.T) {
	t.Parallel()
	const callers, limit = 400, 500
	s := startServer(t)
	db := s.pool(t, 8, "")
	var events atomic.Int64
	l := newLocker(t, db, locker.WithoutRenewal(), locker.WithTTL(time.Hour),
		locker.WithObserver(locker.ObserverFunc(func(context.Context, locker.Event) { events.Add(1) })))
	sem, err := locker.NewSemaphore(l, "k", limit)
	require.NoError(t, err)
	leases := make([]*locker.Lease, callers)
	spent := func(f func(i int) error) int {
		t.Helper()
		sent, before := s.statements(t), events.Load()
		errs := make([]error, callers)
		var all sync.WaitGroup
		for i := range callers {
			all.Go(func() { errs[i] = f(i) })
		}
		all.Wait()
		require.NoError(t, errors.Join(errs...))
		pace.Eventually(t, 20*time.Second, "the events have come", func() bool { return events.Load() >= before+callers })
		require.Equal(t, before+callers, events.Load())
		return s.statements(t) - sent - 1 // to ask is one, too
	}
	available := func(want int) {
		t.Helper()
		free, err := sem.Available(t.Context())
		require.NoError(t, err)
		require.Equal(t, want, free)
	}
	acquire := func(i int) (err error) { leases[i], err = sem.Acquire(t.Context()); return err }
	release := func(i int) error { return leases[i].Unlock(t.Context()) }
	first := spent(acquire)
	t.Logf("the first %d permits cost %d statements", callers, first)
	require.LessOrEqual(t, first, 2*callers+100, "a statement for each claim, and one for its row; the first few find no table and no head")
	spent(release)
	require.Equal(t, callers, spent(acquire))
	available(limit - callers)
	n := spent(release)
	t.Logf("%d releases cost %d statements, with the sweeps of some", callers, n)
	require.LessOrEqual(t, n, 2*callers) // a release sweeps at times: three statements in each of some 16
	available(limit)
}

// The first permit of a key takes five statements, the next one of the Locker one, and a second at the same time two.
func TestFirstPermitsCost(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	d := lockmysql.NewDriver(s.pool(t, 1, ""))
	defer d.Close()
	other := permitsOf(idOf(0), time.Minute, 1, 9)
	other.Key = "other"
	require.True(t, takePermits(t, d, other).Granted) // makes the tables
	for n, want := range []int{5, 2} {
		sent := s.statements(t)
		require.True(t, takePermits(t, d, permitsOf(idOf(n+1), time.Minute, 1, 9)).Granted)
		require.Equal(t, want, s.statements(t)-sent-1)
	}
	require.NoError(t, d.Release(t.Context(), permitsOf(idOf(1), time.Minute, 1, 9)))
	sent := s.statements(t)
	require.True(t, takePermits(t, d, permitsOf(idOf(3), time.Minute, 1, 9)).Granted)
	require.Equal(t, 1, s.statements(t)-sent-1)
}

// BenchmarkPermits is an Acquire and a Release of a permit beside others that are out.
func BenchmarkPermits(b *testing.B) {
	for _, others := range []int{0, 9, 10_000} {
		b.Run(fmt.Sprint(others), func(b *testing.B) {
			d, ctx := lockmysql.NewDriver(startServer(b).pool(b, 4, "")), context.Background()
			defer d.Close()
			take := func(c driver.Claim) {
				if a, err := d.Acquire(ctx, driver.Request{Claim: c, Fencing: true}); err != nil || !a.Granted {
					b.Fatal(a, err)
				}
			}
			for i := range others {
				take(permitsOf(idOf(i), time.Hour, 1, 100_000))
			}
			n := 0
			for b.Loop() {
				c := permitsOf(ofOther(n), time.Minute, 1, 100_000)
				take(c)
				require.NoError(b, d.Release(ctx, c))
				n++
			}
		})
	}
}

// No command reads more rows with 10,000 permits out than with 9: what is out is not counted.
func TestPermitsCost(t *testing.T) {
	t.Parallel()
	const times, limit = 50, 20_000
	s, ctx := startServer(t), t.Context()
	d := lockmysql.NewDriver(s.pool(t, 1, ""))
	defer d.Close()
	n := 0
	reads := func() float64 {
		t.Helper()
		before := s.rowsRead(t)
		for range times {
			n++
			c := permitsOf(ofOther(n), time.Minute, 1, limit)
			require.True(t, takePermits(t, d, c).Granted)
			for _, claims := range [][]driver.Claim{{c}, {c, permitsOf(idOf(1), time.Hour, 1, limit)}} {
				d.Renew(ctx, claims, func(_ int, err error) { require.NoError(t, err) })
			}
			require.False(t, takePermits(t, d, permitsOf(ofThird(1), time.Minute, limit, limit)).Granted)
			require.False(t, waits(t, d, permitsOf(ofThird(2), time.Minute, limit, limit), time.Minute).Granted)
			require.False(t, takePermits(t, d, permitsOf(ofThird(3), time.Minute, 0, 0)).Granted)
			_ = out(t, d)
			require.NoError(t, d.Release(ctx, c))
			require.ErrorIs(t, d.Release(ctx, c), driver.ErrLost)
			require.ErrorIs(t, d.Release(ctx, permitsOf(ofThird(2), time.Minute, limit, limit)), driver.ErrLost)
		}
		return (s.rowsRead(t) - before) / times
	}
	for i := range 9 {
		require.True(t, takePermits(t, d, permitsOf(idOf(i), time.Hour, 1, limit)).Granted)
	}
	few := reads()
	require.NoError(t, s.admin(ctx, `INSERT INTO `+permitsTable+` (hash, claim, id, owner, era, permits, token, ttl, since, expires, forget)
		SELECT hash, UNHEX(SHA2(CONCAT('filled:', n), 256)), CONCAT('filled:', n), owner, era, 1, n, ttl, since, expires + 1000000, forget
		FROM `+permitsTable+` p, (SELECT a.d + 10 * b.d + 100 * c.d + 1000 * e.d AS n FROM `+digits+` a, `+digits+` b, `+digits+` c, `+digits+` e) AS numbers
		WHERE p.id = ?`, []byte(idOf(1))))
	require.NoError(t, s.admin(ctx, `UPDATE `+table+` SET id = CONCAT('permits ', ?, ' 10009 0')`, limit))
	most := reads()
	t.Logf("ten commands read %.0f rows with 9 permits out, and %.0f with 10,009", few, most)
	require.Less(t, most, 3*few, "of 10,009 rows")
}

const digits = `(SELECT 0 AS d UNION SELECT 1 UNION SELECT 2 UNION SELECT 3 UNION SELECT 4 UNION SELECT 5 UNION SELECT 6 UNION SELECT 7 UNION SELECT 8 UNION SELECT 9)`

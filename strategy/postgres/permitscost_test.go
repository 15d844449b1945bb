package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/distlock/locker"
	"github.com/distlock/locker/driver"
	"github.com/distlock/locker/internal/test/pace"
	"github.com/distlock/locker/strategy/postgres"
)

// counting is a pool whose statements are counted.
type counting struct{ n atomic.Int64 }

func (c *counting) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	c.n.Add(1)
	return ctx
}

func (c *counting) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func countingPool(t *testing.T, s *server, params string) (*pgxpool.Pool, *counting) {
	t.Helper()
	cfg, err := pgxpool.ParseConfig(s.url("app", "app") + params)
	require.NoError(t, err)
	c := &counting{}
	cfg.ConnConfig.Tracer = c
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return pool, c
}

// 400 callers of 500 free permits cost 400 statements and 400 events, and so do their releases.
func TestFreePermitsAreCheap(t *testing.T) {
	t.Parallel()
	const callers, limit = 400, 500
	pool, statements := countingPool(t, startServer(t), "&pool_max_conns=8")
	var events atomic.Int64
	l := newLocker(t, pool, locker.WithoutRenewal(), locker.WithTTL(time.Hour),
		locker.WithObserver(locker.ObserverFunc(func(context.Context, locker.Event) { events.Add(1) })))
	s, err := locker.NewSemaphore(l, "k", limit)
	require.NoError(t, err)
	first, err := s.Acquire(t.Context()) // makes the tables
	require.NoError(t, err)
	require.NoError(t, first.Unlock(t.Context()))
	told := func(want int64) { // observers run behind the calls
		t.Helper()
		pace.Eventually(t, 20*time.Second, "the events have come", func() bool { return events.Load() >= want })
		require.Equal(t, want, events.Load())
	}
	told(2)

	leases := make([]*locker.Lease, callers)
	cost := func(what string, together int, f func(i int) error) {
		t.Helper()
		sent, before := statements.n.Load(), events.Load()
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
		require.EqualValues(t, callers, statements.n.Load()-sent, what)
		told(before + callers)
	}
	available := func(want int) {
		t.Helper()
		free, err := s.Available(t.Context())
		require.NoError(t, err)
		require.Equal(t, want, free)
	}
	cost("acquire", callers, func(i int) (err error) { leases[i], err = s.Acquire(t.Context()); return err })
	available(limit - callers)
	cost("release", 4, func(i int) error { return leases[i].Unlock(t.Context()) })
	available(limit)
}

// The head of a key that nobody had before takes no statement of its own.
func TestFirstPermitIsCheap(t *testing.T) {
	t.Parallel()
	pool, statements := countingPool(t, startServer(t), "")
	d := postgres.NewDriver(pool)
	defer d.Close()
	require.True(t, takePermits(t, d, permitsOf(idOf(1), time.Minute, 1, 2)).Granted) // makes the tables
	sent := statements.n.Load()
	c := permitsOf(idOf(2), time.Minute, 2, 2)
	c.Key = "new"
	a := takePermits(t, d, c)
	require.True(t, a.Granted)
	require.Positive(t, a.Token)
	require.NoError(t, d.Release(t.Context(), c))
	require.EqualValues(t, 2, statements.n.Load()-sent)
}

// BenchmarkPermits is an Acquire and an Unlock of a permit beside others that are out.
func BenchmarkPermits(b *testing.B) {
	for _, others := range []int{0, 9, 10_000} {
		b.Run(fmt.Sprint(others), func(b *testing.B) {
			d, ctx := postgres.NewDriver(startServer(b).pool(b, "&pool_max_conns=4")), context.Background()
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

// rowsRead returns how many entries of indexes, and rows without an index, sessions that have ended have read of both tables.
func (s *server) rowsRead(t *testing.T) (n int) {
	t.Helper()
	require.NoError(t, s.ask(t.Context(), &n, `SELECT (SELECT coalesce(sum(idx_tup_read), 0) FROM pg_stat_user_indexes) + (SELECT coalesce(sum(seq_tup_read), 0) FROM pg_stat_user_tables)`))
	return n
}

// No command reads more rows with 10,000 permits out than with 9: what is out is not counted.
func TestPermitsCost(t *testing.T) {
	t.Parallel()
	const times, limit = 50, 20_000
	s, ctx := startServer(t, "autovacuum=off"), t.Context()
	n := 0
	reads := func() int {
		t.Helper()
		pool := s.pool(t, "&enable_seqscan=off&pool_max_conns=1")
		d := postgres.NewDriver(pool)
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
		require.NoError(t, d.Close())
		last := s.rowsRead(t)
		pool.Close() // a session reports what it has read at its end
		pace.Eventually(t, 20*time.Second, "the statistics have come", func() bool { return s.rowsRead(t) > last })
		return (s.rowsRead(t) - before) / times
	}
	pool := s.pool(t, "")
	d := postgres.NewDriver(pool)
	for i := range 9 {
		require.True(t, takePermits(t, d, permitsOf(idOf(i), time.Hour, 1, limit)).Granted)
	}
	require.NoError(t, d.Close())
	pool.Close()
	few := reads()
	require.NoError(t, s.admin(ctx, `INSERT INTO `+permitsTable+` SELECT hash, era, convert_to(format('filled:%s', i), 'UTF8'), owner, 1, i, since, expires + interval '1 s', forget
		FROM `+permitsTable+` p, generate_series(1, 9991) i WHERE p.id = $1`, []byte(idOf(1))))
	require.NoError(t, s.admin(ctx, `UPDATE `+table+` SET id = convert_to(format('permits %s %s', $1::int, 10000), 'UTF8')`, limit))
	most := reads()
	t.Logf("ten commands read %d rows with 9 permits out, and %d with 10,000", few, most)
	require.Less(t, most, 3*few, "of 10,000 rows")
}

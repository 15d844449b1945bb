package postgres_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/distlock/locker"
	"github.com/distlock/locker/driver"
	"github.com/distlock/locker/internal/test/pace"
	"github.com/distlock/locker/internal/test/permitstest"
	"github.com/distlock/locker/strategy/postgres"
)

var permitsKind = permitstest.Kind{
	Name: "postgres",
	Start: func(tb testing.TB, settings ...string) permitstest.Store {
		tb.Helper()
		return permitStore{startServer(tb, settings...)}
	},
	Dial: func(tb testing.TB, url string) driver.Driver {
		tb.Helper()
		return postgres.NewDriver(newPool(tb, url))
	},
	Keys: table, Claims: permitsTable, Key: "key",
	Is: func(id string) string { return `id = '` + id + `'` },
	After: func(d time.Duration) string {
		return fmt.Sprintf("clock_timestamp() + interval '%d us'", d.Microseconds())
	},
	Text: func(column string) string { return `convert_from(` + column + `, 'UTF8')` },
	Word: func(text string, n int) string { return fmt.Sprintf("split_part(%s, ' ', %d)::bigint", text, n) },
	Fill: `INSERT INTO ` + permitsTable + ` SELECT hash, era, convert_to(format('filled:%s', i), 'UTF8'), owner, 1, i, since, expires + interval '1 s', forget
		FROM ` + permitsTable + ` p, generate_series(1, 9991) i WHERE p.id = '` + permitstest.IDOf(1) + `';
		UPDATE ` + table + ` SET id = 'permits 20000 10000'`,
	Levels:     []string{""},
	EndsFollow: true,
	Still:      []string{"autovacuum=off"},

	WithTable: postgres.WithTable,
	Names:     []string{strings.Repeat("x", 55), strings.Repeat("x", 56), strings.Repeat("x", 63), "public." + strings.Repeat("y", 63)},
	Count:     `SELECT count(*) FROM pg_class WHERE relkind = 'r' AND relname LIKE '%\_permits'`,
	Missing:   []string{"postgres.Schema", `"public"."locker_locks_permits" does not exist`},

	First:   [3]int{1, 1, 1},
	Refused: [2]int{1, 1},
}

func TestPermits(t *testing.T) {
	t.Parallel()
	permitstest.Run(t, permitsKind)
}

func BenchmarkPermits(b *testing.B) { permitstest.Bench(b, permitsKind) }

// permitStore implements permitstest.Store.
type permitStore struct{ s *server }

func (p permitStore) CPU() time.Duration { return p.s.CPU() }

func (p permitStore) URL() string { return p.s.url("app", "app") }

func (p permitStore) Driver(tb testing.TB, n int) driver.Driver {
	tb.Helper()
	params := ""
	if n > 0 {
		params = fmt.Sprintf("&pool_max_conns=%d", n)
	}
	d := postgres.NewDriver(p.s.pool(tb, params))
	tb.Cleanup(func() { _ = d.Close() })
	return d
}

// counting is a pool's tracer that counts its statements.
type counting struct {
	n      atomic.Int64
	before func(sql string) // is called before each; nil: nothing is
}

func (c *counting) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	c.n.Add(1)
	if c.before != nil {
		c.before(data.SQL)
	}
	return ctx
}

func (c *counting) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (p permitStore) Counted(tb testing.TB, n int) (driver.Driver, func() int) {
	tb.Helper()
	c := &counting{}
	return p.traced(tb, n, c), func() int { return int(c.n.Load()) }
}

func (p permitStore) traced(tb testing.TB, n int, c *counting) driver.Driver {
	tb.Helper()
	cfg, err := pgxpool.ParseConfig(p.URL())
	require.NoError(tb, err)
	cfg.ConnConfig.Tracer, cfg.MaxConns = c, int32(n)
	pool, err := pgxpool.NewWithConfig(context.Background(), cfg)
	require.NoError(tb, err)
	tb.Cleanup(pool.Close)
	d := postgres.NewDriver(pool)
	tb.Cleanup(func() { _ = d.Close() })
	return d
}

// Reads asks the server when it knows of what the session of f has done last, a row for a table of the test's: a session
// that takes long reports in between, too, and it may have nothing left to report when it ends.
func (p permitStore) Reads(t *testing.T, f func(driver.Driver)) float64 {
	t.Helper()
	read := func() (n int) {
		t.Helper()
		require.NoError(t, p.s.ask(t.Context(), &n, `SELECT (SELECT coalesce(sum(idx_tup_read), 0) FROM pg_stat_user_indexes) + (SELECT coalesce(sum(seq_tup_read), 0) FROM pg_stat_user_tables)`))
		return n
	}
	pool := p.s.pool(t, "&enable_seqscan=off&pool_max_conns=1")
	d, before := postgres.NewDriver(pool), read()
	f(d)
	require.NoError(t, d.Close())
	last := fmt.Sprint("last", before)
	for _, sql := range []string{`CREATE TABLE public.` + last + ` (x int)`, `INSERT INTO public.` + last + ` VALUES (1)`} {
		_, err := pool.Exec(t.Context(), sql)
		require.NoError(t, err)
	}
	pool.Close()
	pace.Eventually(t, 20*time.Second, "the statistics have come", func() (known bool) {
		require.NoError(t, p.s.ask(t.Context(), &known, `SELECT EXISTS (SELECT FROM pg_stat_user_tables WHERE relname = '`+last+`' AND n_tup_ins = 1)`))
		return known
	})
	return float64(read() - before)
}

func (p permitStore) Weak(t *testing.T) (driver.Driver, func()) {
	t.Helper()
	schema, err := postgres.Schema(table)
	require.NoError(t, err)
	admin := func(sql string) {
		t.Helper()
		require.NoError(t, p.Admin(t.Context(), sql))
	}
	may := `; GRANT SELECT, INSERT, UPDATE, DELETE ON %s TO weak`
	admin(schema)
	admin(`DROP TABLE ` + permitsTable + `; CREATE ROLE weak LOGIN; REVOKE CREATE ON SCHEMA public FROM public` + fmt.Sprintf(may, table))
	return permitsKind.Dial(t, p.s.url("weak", "app")), func() {
		admin(schema)
		admin(`SELECT 1` + fmt.Sprintf(may, permitsTable))
	}
}

func (p permitStore) Admin(ctx context.Context, sql string) error { return p.s.admin(ctx, sql) }

func (p permitStore) Ask(ctx context.Context, value any, sql string) error {
	return p.s.ask(ctx, value, sql)
}

func (p permitStore) Lock(t *testing.T, sql string) func() {
	t.Helper()
	conn, err := p.s.connect(t.Context(), "app", "app")
	require.NoError(t, err)
	tx, err := conn.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), sql)
	require.NoError(t, err)
	return func() {
		t.Helper()
		require.NoError(t, tx.Commit(t.Context()))
		require.NoError(t, conn.Close(t.Context()))
	}
}

func (p permitStore) Waiting(t *testing.T) (n int) {
	t.Helper()
	require.NoError(t, p.s.ask(t.Context(), &n, `SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'`))
	return n
}

func (p permitStore) Cut(ctx context.Context) error { return p.s.admin(ctx, cut) }

// A table of permits of another shape is no reason to try again.
func TestPermitsNeedTheirColumns(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	sem, err := locker.NewSemaphore(newLocker(t, s.pool(t, "")), "k", 2)
	require.NoError(t, err)
	lease, err := sem.Acquire(t.Context()) // makes the tables
	require.NoError(t, err)
	require.NoError(t, lease.Unlock(t.Context()))
	require.NoError(t, s.admin(t.Context(), `ALTER TABLE `+permitsTable+` RENAME COLUMN era TO epoch`))
	_, err = sem.Acquire(t.Context())
	require.ErrorIs(t, err, locker.ErrUnavailable)
	require.ErrorContains(t, err, "postgres.Schema")
}

// Without a wake-up waiters look once a second.
func TestPermitsWakeWaiters(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	waits := newWaiting()
	a, b := newLocker(t, s.pool(t, "")), newLocker(t, s.pool(t, ""), locker.WithObserver(waits))
	semA, err := locker.NewSemaphore(a, "k", 1)
	require.NoError(t, err)
	semB, err := locker.NewSemaphore(b, "k", 1)
	require.NoError(t, err)
	lease, err := semA.Acquire(t.Context())
	require.NoError(t, err)
	done := make(chan error, 1)
	go func() {
		next, err := semB.Acquire(t.Context())
		if err == nil {
			err = next.Unlock(t.Context())
		}
		done <- err
	}()
	<-waits.c
	require.NoError(t, lease.Unlock(t.Context()))
	require.NoError(t, <-done)
}

// A key of which the Locker has seen free permits is asked by a smaller statement, which knows as much.
func TestPermitsAgain(t *testing.T) {
	t.Parallel()
	store := permitStore{startServer(t)}
	d, statements := store.Counted(t, 1)
	take := func(id string, limit int) driver.Answer {
		t.Helper()
		a, err := d.Acquire(t.Context(), driver.Request{Claim: driver.Claim{Key: "k", ID: id, Owner: id, TTL: time.Minute, Permits: 1, Limit: limit}, Fencing: true})
		require.NoError(t, err)
		require.True(t, a.Granted)
		return a
	}
	take("a", 9) // makes the tables
	before := statements()
	b := take("b", 9)
	require.Equal(t, before+1, statements())
	require.Equal(t, 7, b.Free)
	require.Equal(t, b.Token, take("b", 9).Token, "sent twice")
	require.Equal(t, before+3, statements(), "the larger statement finds the claim")
	c := take("c", 5)
	require.Equal(t, 9, c.Limit, "the limit that others name")
	require.Equal(t, 2, c.Free)
	require.Zero(t, take("d", 5).Limit)
	out, limit, err := d.(driver.PermitKeeper).Permits(t.Context(), "k")
	require.NoError(t, err)
	require.Equal(t, []int{4, 5}, []int{out, limit})
}

// Whether a claim's own first sending has taken the last permit is not known while another transaction has the row of
// the key. That is an error: after a refusal nobody would give the permit back.
func TestPermitsThatMayBeItsOwn(t *testing.T) {
	t.Parallel()
	store := permitStore{startServer(t)}
	request := func(id string, ttl time.Duration) driver.Request {
		return driver.Request{Claim: driver.Claim{Key: "k", ID: id, Owner: id, TTL: ttl, Permits: 1, Limit: 2}, Fencing: true}
	}
	a, err := store.Driver(t, 1).Acquire(t.Context(), request("other", time.Minute))
	require.NoError(t, err)
	require.True(t, a.Granted)
	sent := store.Lock(t, `WITH sent AS (INSERT INTO `+permitsTable+` SELECT hash, era, 'a', owner, 1, token, since, expires, forget FROM `+permitsTable+`)
		UPDATE `+table+` SET id = 'permits 2 2'`) // the first sending, which is not committed
	free := func() {}
	d := store.traced(t, 1, &counting{before: func(sql string) {
		if strings.Contains(sql, "unnest") { // it looks for its claim
			free = store.Lock(t, `SELECT FROM `+table+` FOR UPDATE`)
		}
	}})
	failed := make(chan error, 1)
	go func() {
		_, err := d.Acquire(t.Context(), request("a", time.Hour)) // longer than the row of the key lasts: it is locked
		failed <- err
	}()
	pace.Eventually(t, 20*time.Second, "it is sent again", func() bool { return store.Waiting(t) == 1 })
	sent()
	require.Error(t, <-failed)
	free()
}

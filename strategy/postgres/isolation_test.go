package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/distlock/locker"
	"github.com/distlock/locker/driver"
	"github.com/distlock/locker/strategy/postgres"
)

// In serializable sessions a key that nobody else wants is granted: what the server rolls back
// is no refusal.
func TestSerializableSessions(t *testing.T) {
	t.Parallel()
	s, ctx := startServer(t), t.Context()
	l := newLocker(t, s.pool(t, "&default_transaction_isolation=serializable&pool_max_conns=8"))
	var all sync.WaitGroup
	for g := range 8 {
		all.Go(func() {
			for i := range 100 {
				lease, err := l.TryLock(ctx, fmt.Sprint(g, "-", i))
				if err == nil {
					err = lease.Unlock(ctx)
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
}

// A statement that the server has rolled back is sent again, and not for ever.
func TestRolledBack(t *testing.T) {
	t.Parallel()
	s, ctx := startServer(t), t.Context()
	l := newLocker(t, s.pool(t, ""))
	lease, err := l.Lock(ctx, "warm-up") // makes the table
	require.NoError(t, err)
	require.NoError(t, lease.Unlock(ctx))
	for i, code := range []string{"serialization_failure", "deadlock_detected"} {
		require.NoError(t, s.admin(ctx, fmt.Sprintf(`CREATE SEQUENCE tries%d`, i))) // keeps what is rolled back
		require.NoError(t, s.admin(ctx, fmt.Sprintf(`GRANT ALL ON tries%d TO app`, i)))
		require.NoError(t, s.admin(ctx, fmt.Sprintf(`CREATE FUNCTION fail%[1]d() RETURNS trigger LANGUAGE plpgsql AS $$
			BEGIN
				IF nextval('tries%[1]d') %% 4 <> 0 OR new.key = 'never' THEN RAISE EXCEPTION 'rolled back' USING ERRCODE = '%[2]s'; END IF;
				RETURN new;
			END $$`, i, code)))
		require.NoError(t, s.admin(ctx, fmt.Sprintf(`CREATE TRIGGER fail BEFORE INSERT ON `+table+` FOR EACH ROW EXECUTE FUNCTION fail%d()`, i)))
		lease, err := l.TryLock(ctx, "k"+code)
		require.NoError(t, err, code)
		require.NoError(t, lease.Unlock(ctx))
		_, err = l.TryLock(ctx, "never")
		require.ErrorIs(t, err, locker.ErrUnavailable, code)
		require.NotErrorIs(t, err, locker.ErrNotAcquired, code)
		require.NoError(t, s.admin(ctx, `DROP TRIGGER fail ON `+table))
	}
}

// A renewal and a release that the server has rolled back are sent again as well.
func TestRolledBackChanges(t *testing.T) {
	t.Parallel()
	s, ctx := startServer(t), t.Context()
	d := postgres.NewDriver(s.pool(t, ""))
	defer d.Close()
	var claims []driver.Claim
	for i, c := range []driver.Claim{{}, {}, {Permits: 1, Limit: 9}, {Permits: 1, Limit: 9}} {
		c.Key, c.ID, c.Owner, c.TTL = fmt.Sprint("k", i), fmt.Sprint("i", i), "o", time.Minute
		a, err := d.Acquire(ctx, driver.Request{Claim: c, Fencing: i > 0})
		require.NoError(t, err)
		require.True(t, a.Granted)
		c.Token = a.Token
		claims = append(claims, c)
	}
	for _, sql := range []string{
		`CREATE SEQUENCE tries`, // keeps what is rolled back
		`GRANT ALL ON tries TO app`,
		`CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$
			BEGIN
				IF nextval('tries') <= 3 THEN RAISE EXCEPTION 'rolled back' USING ERRCODE = 'serialization_failure'; END IF;
				IF TG_OP = 'DELETE' THEN RETURN old; END IF;
				RETURN new;
			END $$`,
		`CREATE TRIGGER fail BEFORE UPDATE OR DELETE ON ` + table + ` FOR EACH ROW EXECUTE FUNCTION fail()`,
		`CREATE TRIGGER fail BEFORE UPDATE OR DELETE ON ` + permitsTable + ` FOR EACH ROW EXECUTE FUNCTION fail()`,
	} {
		require.NoError(t, s.admin(ctx, sql))
	}
	isSent := func(what string, change func() error) {
		t.Helper()
		require.NoError(t, s.admin(ctx, `SELECT setval('tries', 1, false)`))
		require.NoError(t, change(), what)
		n := 0
		require.NoError(t, s.ask(ctx, &n, `SELECT last_value FROM tries`))
		require.Greater(t, n, 3, what)
	}
	renew := func(some ...driver.Claim) func() error {
		return func() error {
			errs := make([]error, len(some))
			d.Renew(ctx, some, func(i int, err error) { errs[i] = err })
			return errors.Join(errs...)
		}
	}
	isSent("a renewal", renew(claims[0]))
	isSent("a batch", renew(claims[:2]...))
	isSent("a renewal of permits", renew(claims[2]))
	isSent("a batch of permits", renew(claims[2:]...))
	for _, c := range claims {
		isSent("a release of "+c.Key, func() error { return d.Release(ctx, c) })
	}
}

// A wait for something else than the row, for longer than a statement waits, is no refusal: here that is a lock of the
// test's, on a busy server the turn to add a page to the table.
func TestWaitForNoRow(t *testing.T) {
	t.Parallel()
	s, ctx := startServer(t), t.Context()
	l := newLocker(t, s.pool(t, ""))
	cycle(t, l, "warm-up") // makes the table
	conn, err := s.connect(ctx, "postgres", "app")
	require.NoError(t, err)
	defer conn.Close(context.WithoutCancel(ctx))
	for _, sql := range []string{
		`CREATE SEQUENCE tries`, // keeps what is rolled back
		`GRANT ALL ON tries TO app`,
		`SELECT pg_advisory_lock(1)`,
		`ALTER TABLE ` + table + ` ADD CHECK (key <> 'never' AND nextval('tries') % 4 = 0 OR pg_advisory_xact_lock(1) IS NOT NULL) NOT VALID`,
	} {
		_, err := conn.Exec(ctx, sql)
		require.NoError(t, err)
	}
	_, err = l.TryLock(ctx, "k")
	require.NoError(t, err)
	_, err = l.TryLock(ctx, "never")
	require.ErrorIs(t, err, locker.ErrUnavailable)
	require.NotErrorIs(t, err, locker.ErrNotAcquired)
}

// The name of a table is a name, whatever the session takes a backslash for.
func TestTableNameIsNoSQL(t *testing.T) {
	t.Parallel()
	s, ctx := startServer(t), t.Context()
	for _, setting := range []string{"off", "on"} {
		require.NoError(t, s.admin(ctx, `ALTER ROLE app SET standard_conforming_strings = `+setting))
		require.NoError(t, s.admin(ctx, `CREATE TABLE public.v (x int)`))
		require.NoError(t, s.admin(ctx, `ALTER TABLE public.v OWNER TO app`))
		name := `x\'||chr(34))IS NULL THEN DROP TABLE v;END IF;IF true THEN--`
		l := newLocker(t, s.pool(t, ""), postgres.WithTable(name))
		lease, err := l.TryLock(ctx, "k")
		require.NoError(t, err)
		require.NoError(t, lease.Unlock(ctx))
		there := ""
		require.NoError(t, s.ask(ctx, &there, `SELECT string_agg(relname, ' ' ORDER BY relname) FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace`))
		permits := strings.TrimSuffix(there, " v "+name)
		require.Equal(t, permits+" v "+name, there)
		require.Regexp(t, `^[0-9a-f]{55}_permits$`, permits)
		require.NoError(t, s.admin(ctx, `DROP TABLE public.v, public."`+permits+`", `+pgx.Identifier{"public", name}.Sanitize()))
	}
}

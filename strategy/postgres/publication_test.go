package postgres_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/distlock/locker"
	"github.com/distlock/locker/driver"
	"github.com/distlock/locker/internal/test/pace"
	"github.com/distlock/locker/strategy/postgres"
)

// makeTables runs the SQL of Schema, as a user.
func (s *server) makeTables(t *testing.T, user, database string) {
	t.Helper()
	schema, err := postgres.Schema(table)
	require.NoError(t, err)
	conn, err := s.connect(t.Context(), user, database)
	require.NoError(t, err)
	_, err = conn.PgConn().Exec(t.Context(), schema).ReadAll()
	require.NoError(t, err)
	require.NoError(t, conn.Close(t.Context()))
}

// publish replicates all tables of the database to another one, in which the caller has made the Lockers' tables. It
// returns a function that waits until a query there is true.
func (s *server) publish(t *testing.T) (becomes func(sql string)) {
	t.Helper()
	ctx := t.Context()
	for _, sql := range []string{`CREATE PUBLICATION everything FOR ALL TABLES`, `SELECT pg_create_logical_replication_slot('copy', 'pgoutput')`} {
		require.NoError(t, s.admin(ctx, sql))
	}
	conn, err := s.connect(ctx, "postgres", "copy")
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	_, err = conn.Exec(ctx, `CREATE SUBSCRIPTION copy CONNECTION 'dbname=app user=postgres host=`+s.Dir+`' PUBLICATION everything
		WITH (create_slot = false, slot_name = 'copy')`)
	require.NoError(t, err)
	return func(sql string) {
		t.Helper()
		pace.Eventually(t, 30*time.Second, sql, func() (yes bool) {
			require.NoError(t, conn.QueryRow(ctx, sql).Scan(&yes))
			return yes
		})
	}
}

// usesAll takes and gives back a lock and a permit while they are replicated.
func usesAll(t *testing.T, l locker.Locker, becomes func(sql string)) (last int64) {
	t.Helper()
	ctx := t.Context()
	const row = `SELECT count(*) = 1 FROM ` + table + ` WHERE hash = sha256('k') AND key = 'k' AND `
	for range 2 { // the second time the row is there
		lease, err := l.Lock(ctx, "k", locker.WithTTL(time.Minute))
		require.NoError(t, err)
		becomes(row + `id <> '' AND expires > clock_timestamp()`)
		require.NoError(t, lease.Renew(ctx))
		require.NoError(t, lease.Unlock(ctx))
		becomes(row + `id = ''`)
		last = lease.Token()
	}
	sem, err := locker.NewSemaphore(l, "permits", 2)
	require.NoError(t, err)
	lease, err := sem.Acquire(ctx)
	require.NoError(t, err)
	becomes(`SELECT count(*) = 1 FROM ` + permitsTable)
	require.NoError(t, lease.Renew(ctx))
	require.NoError(t, lease.Unlock(ctx))
	becomes(`SELECT count(*) = 0 FROM ` + permitsTable)
	return last
}

// A publication of the whole database ends neither locks nor what applies it elsewhere, and locks go on there.
func TestPublication(t *testing.T) {
	t.Parallel()
	s := startServer(t, "wal_level=logical", "max_wal_senders=4")
	require.NoError(t, s.admin(t.Context(), `CREATE DATABASE copy OWNER app`))
	s.makeTables(t, "app", "app")
	s.makeTables(t, "app", "copy")
	l := newLocker(t, s.pool(t, ""))
	before, err := l.Lock(t.Context(), "before", locker.WithTTL(time.Minute))
	require.NoError(t, err)
	becomes := s.publish(t)
	becomes(`SELECT count(*) = 1 FROM ` + table + ` WHERE hash = sha256('before')`)
	require.NoError(t, before.Unlock(t.Context()))
	last := usesAll(t, l, becomes)
	there, err := newLocker(t, newPool(t, s.url("app", "copy"))).TryLock(t.Context(), "k")
	require.NoError(t, err)
	require.Greater(t, there.Token(), last)
	require.NoError(t, there.Unlock(t.Context()))
}

// generated is the table of keys as it was made before the trigger.
const generated = `
	CREATE TABLE ` + table + ` (
		hash       bytea PRIMARY KEY GENERATED ALWAYS AS (sha256(key)) STORED,
		key        bytea NOT NULL,
		id         bytea NOT NULL DEFAULT '',
		owner      bytea NOT NULL DEFAULT '',
		token      bigint NOT NULL DEFAULT 0,
		last_token bigint NOT NULL DEFAULT 0,
		since      timestamptz NOT NULL DEFAULT '-infinity',
		expires    timestamptz NOT NULL DEFAULT '-infinity',
		forget     timestamptz NOT NULL DEFAULT clock_timestamp() + interval '10 min'
	) WITH (fillfactor = 70);
	CREATE INDEX ON ` + table + ` (forget);
	ALTER TABLE ` + table + ` OWNER TO app`

// A table whose hash is generated goes on working, and nobody changes it.
func TestOldTable(t *testing.T) {
	t.Parallel()
	s, ctx := startServer(t), t.Context()
	require.NoError(t, s.admin(ctx, generated))
	s.makeTables(t, "app", "app") // that of permits
	l := newLocker(t, s.pool(t, ""))
	ask := func(sql string) {
		t.Helper()
		yes := false
		require.NoError(t, s.ask(ctx, &yes, sql))
		require.True(t, yes, sql)
	}
	usesAll(t, l, ask)
	lease, err := l.Lock(ctx, "k")
	require.NoError(t, err)
	_, err = newLocker(t, s.pool(t, "")).TryLock(ctx, "k")
	require.ErrorIs(t, err, locker.ErrNotAcquired)
	d := postgres.NewDriver(s.pool(t, ""))
	defer d.Close()
	c := driver.Claim{Key: "application", ID: "i", Owner: "o", TTL: time.Minute}
	require.NoError(t, s.admin(ctx, `INSERT INTO `+table+` (key) VALUES ('application')`))
	a, err := d.Acquire(ctx, driver.Request{Claim: c})
	require.NoError(t, err)
	require.True(t, a.Granted)
	require.NoError(t, d.Release(ctx, c))
	require.NoError(t, lease.Unlock(ctx))
	ask(`SELECT attgenerated = 's' FROM pg_attribute WHERE attrelid = '` + table + `'::regclass AND attname = 'hash'`)
	ask(`SELECT count(*) = 0 FROM pg_trigger WHERE tgrelid = '` + table + `'::regclass`)
}

// The SQL of docs/operating.md makes an old table one that can be published, while a lock is held.
func TestOldTableIsPublished(t *testing.T) {
	t.Parallel()
	s, ctx := startServer(t, "wal_level=logical", "max_wal_senders=4"), t.Context()
	require.NoError(t, s.admin(ctx, `CREATE DATABASE copy OWNER app`))
	require.NoError(t, s.admin(ctx, generated))
	s.makeTables(t, "app", "app") // that of permits
	s.makeTables(t, "app", "copy")
	l := newLocker(t, s.pool(t, ""))
	held, err := l.Lock(ctx, "held", locker.WithTTL(time.Minute))
	require.NoError(t, err)
	conn, err := s.connect(ctx, "app", "app")
	require.NoError(t, err)
	defer conn.Close(ctx)
	ran := 0
	for _, b := range pageBlocks(t, "sql") {
		if strings.Contains(b.Text, "DROP EXPRESSION") {
			ran++
			_, err := conn.Exec(ctx, b.Text, pgx.QueryExecModeSimpleProtocol)
			require.NoError(t, err, b.Name())
		}
	}
	require.Equal(t, 1, ran)
	becomes := s.publish(t)
	require.NoError(t, held.Renew(ctx))
	usesAll(t, l, becomes)
	require.NoError(t, held.Unlock(ctx))
	becomes(`SELECT count(*) = 1 FROM ` + table + ` WHERE hash = sha256('held') AND id = ''`)
}

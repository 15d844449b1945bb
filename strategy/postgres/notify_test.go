package postgres_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/distlock/locker/driver"
	"github.com/distlock/locker/internal/test/pace"
	"github.com/distlock/locker/strategy/postgres"
)

// slowCommit leaves a transaction with a NOTIFY in its COMMIT, which waits for a standby that
// is not there, until the function that it returns is called.
func slowCommit(t *testing.T, s *server) (end func()) {
	t.Helper()
	ctx := t.Context()
	var commit *pgx.Conn
	ended := make(chan error, 1)
	begin := func() {
		var err error
		commit, err = s.connect(ctx, "postgres", "app")
		require.NoError(t, err)
		_, err = commit.Exec(ctx, `SET synchronous_commit = on`)
		require.NoError(t, err)
		go func() {
			_, err := commit.Exec(ctx, `SELECT pg_notify('other', ''), pg_logical_emit_message(true, '', '')`)
			ended <- err
		}()
	}
	begin()
	pace.Eventually(t, 20*time.Second, "a COMMIT waits for the standby", func() bool {
		select {
		case err := <-ended: // the server did not know yet that it has a standby
			require.NoError(t, err)
			require.NoError(t, commit.Close(ctx))
			begin()
		default:
		}
		n := 0
		require.NoError(t, s.ask(ctx, &n, `SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'`))
		return n > 0
	})
	return func() {
		t.Helper()
		require.NoError(t, s.admin(ctx, `SELECT pg_terminate_backend($1)`, int32(commit.PgConn().PID())))
		<-ended //nolint:errcheck // it was terminated
		_ = commit.Close(context.Background())
	}
}

// A release waits for the COMMIT of another transaction with a NOTIFY, however long that takes:
// its row is free, and giving up would put it behind the others.
func TestReleaseWaitsForNotify(t *testing.T) {
	t.Parallel()
	s := startServer(t, "wal_level=replica", "max_wal_senders=1", "synchronous_standby_names=nobody", "synchronous_commit=local")
	ctx := t.Context()
	for i, session := range []string{"", "&lock_timeout=20s", "", "&lock_timeout=20s"} {
		d := postgres.NewDriver(s.pool(t, session))
		defer d.Close()
		c := grant(t, d, fmt.Sprint("k", i))
		if i > 1 {
			c = lazily(t, d, c)
		}
		end := slowCommit(t, s)
		released := make(chan error, 1)
		go func() { released <- d.Release(ctx, c) }()
		pace.Eventually(t, 20*time.Second, "the release waits for the lock of NOTIFY", func() bool {
			n := 0
			require.NoError(t, s.ask(ctx, &n, `SELECT count(*) FROM pg_locks WHERE locktype = 'object' AND NOT granted`))
			return n > 0 || len(released) > 0
		})
		select {
		case err := <-released:
			require.Fail(t, "the release has given up", "%v", err)
		case <-time.After(500 * time.Millisecond): // ten times what it would wait for a row
		}
		end()
		require.NoError(t, <-released)
	}
}

// The session's own lock_timeout bounds the COMMIT.
func TestReleaseKeepsLockTimeout(t *testing.T) {
	t.Parallel()
	s := startServer(t, "wal_level=replica", "max_wal_senders=1", "synchronous_standby_names=nobody", "synchronous_commit=local")
	ctx := t.Context()
	d := postgres.NewDriver(s.pool(t, "&lock_timeout=200&pool_max_conns=1"))
	defer d.Close()
	c := grant(t, d, "k")
	for _, c := range []driver.Claim{c, lazily(t, d, c)} {
		end := slowCommit(t, s)
		start := time.Now()
		err := d.Release(ctx, c)
		require.ErrorContains(t, err, "lock timeout")
		require.False(t, driver.MaybeApplied(err))
		require.GreaterOrEqual(t, time.Since(start), 200*time.Millisecond)
		end()
		require.NoError(t, d.Release(ctx, c))
	}
}

// grant takes key for an hour.
func grant(t *testing.T, d driver.Driver, key string) driver.Claim {
	t.Helper()
	c := driver.Claim{Key: key, ID: "id of " + key, Owner: "i", TTL: time.Hour}
	a, err := d.Acquire(t.Context(), driver.Request{Claim: c, Fencing: true})
	require.NoError(t, err)
	require.True(t, a.Granted)
	return c
}

// lazily grants another claim, for a minute, whose release does not wait for the log. A first
// release has been sent before, as that one sweeps.
func lazily(t *testing.T, d driver.Driver, c driver.Claim) driver.Claim {
	t.Helper()
	require.ErrorIs(t, d.Release(t.Context(), driver.Claim{Key: "none", ID: "none", TTL: time.Minute}), driver.ErrLost)
	c.Key, c.ID, c.TTL = "lazy "+c.Key, "lazy "+c.ID, time.Minute
	a, err := d.Acquire(t.Context(), driver.Request{Claim: c, Fencing: true})
	require.NoError(t, err)
	require.True(t, a.Granted)
	c.Token = a.Token
	return c
}

// A queue of notifications that is full, as a session in a long transaction leaves it, keeps
// nobody from releasing.
func TestReleaseWithAFullQueue(t *testing.T) {
	t.Parallel()
	s, ctx := startServer(t), t.Context()
	l := newLocker(t, s.pool(t, ""))
	held, err := l.Lock(ctx, "warm-up") // makes the table
	require.NoError(t, err)
	require.NoError(t, held.Unlock(ctx))
	// The queue takes 8 GB to fill: this has the words and the code of the server.
	require.NoError(t, s.admin(ctx, `CREATE SCHEMA fake`))
	require.NoError(t, s.admin(ctx, `GRANT USAGE ON SCHEMA fake TO app`))
	require.NoError(t, s.admin(ctx, `CREATE FUNCTION fake.pg_notify(text, text) RETURNS void LANGUAGE plpgsql AS $$
		BEGIN RAISE EXCEPTION 'too many notifications in the NOTIFY queue' USING ERRCODE = 'program_limit_exceeded'; END $$`))
	full := newLocker(t, s.pool(t, "&search_path=fake,pg_catalog"))
	lease, err := full.TryLock(ctx, "k")
	require.NoError(t, err)
	require.NoError(t, lease.Unlock(ctx))
	next, err := l.TryLock(ctx, "k")
	require.NoError(t, err)
	require.Greater(t, next.Token(), lease.Token())
}

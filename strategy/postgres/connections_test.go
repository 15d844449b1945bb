package postgres_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/distlock/locker"
	"github.com/distlock/locker/driver"
	"github.com/distlock/locker/internal/servers"
	"github.com/distlock/locker/internal/test/pace"
	"github.com/distlock/locker/strategy/postgres"
)

// Settings of the pool's sessions change nothing.
func TestSessionSettings(t *testing.T) {
	t.Parallel()
	s, ctx := startServer(t), t.Context()
	for _, set := range []string{
		"&default_transaction_isolation=serializable", "&timezone=Asia/Kathmandu", "&datestyle=sql", "&search_path=pg_catalog",
		"&intervalstyle=iso_8601", "&bytea_output=escape", "&default_query_exec_mode=simple_protocol",
		"&default_query_exec_mode=exec", "&default_query_exec_mode=cache_describe",
	} {
		a, b := newLocker(t, s.pool(t, set)), newLocker(t, s.pool(t, set))
		lease, err := a.Lock(ctx, "k"+set)
		require.NoError(t, err, set)
		_, err = b.TryLock(ctx, "k"+set)
		require.ErrorIs(t, err, locker.ErrNotAcquired, set)
		require.NoError(t, lease.Renew(ctx), set)
		h, err := b.(*locker.Client).Inspect(ctx, "k"+set)
		require.NoError(t, err, set)
		require.WithinDuration(t, time.Now(), h.Since, time.Minute, set)
		require.NoError(t, lease.Unlock(ctx), set)
		next, err := b.TryLock(ctx, "k"+set)
		require.NoError(t, err, set)
		require.Greater(t, next.Token(), lease.Token(), set)
	}
}

// Through PgBouncer in transaction mode locks work and waiters poll.
func TestPgBouncer(t *testing.T) {
	t.Parallel()
	binary, err := exec.LookPath("pgbouncer")
	if err != nil {
		t.Skip("PgBouncer is not installed")
	}
	s, ctx := startServer(t), t.Context()
	write := func(name, content string) string {
		path := filepath.Join(s.Dir, name)
		require.NoError(t, os.WriteFile(path, []byte(content), 0o644))
		return path
	}
	users := write("users.txt", `"app" ""`+"\n")
	ini := write("pgbouncer.ini", fmt.Sprintf("[databases]\napp = host=%[1]s\n[pgbouncer]\npool_mode = transaction\ndefault_pool_size = 2\n"+
		"listen_addr =\nunix_socket_dir = %[1]s\nlisten_port = 6432\nauth_type = trust\nauth_file = %[2]s\npidfile = %[1]s/pgbouncer.pid\n"+
		"logfile = %[1]s/pgbouncer.log\n", s.Dir, users))
	bouncer := servers.Command(binary, ini)
	require.NoError(t, bouncer.Start())
	t.Cleanup(func() {
		_ = bouncer.Process.Kill()
		_ = bouncer.Wait()
	})
	url := s.url("app", "app") + "&port=6432&default_query_exec_mode=exec"
	pace.Eventually(t, 10*time.Second, "PgBouncer answers", func() bool {
		conn, err := pgx.Connect(ctx, url)
		if err == nil {
			err = conn.Close(ctx)
		}
		return err == nil
	})

	waiting := newWaiting()
	holder, waiter := newLocker(t, newPool(t, url)), newLocker(t, newPool(t, url), locker.WithObserver(waiting))
	for i := range 10 { // on any of the server's connections
		lease, err := holder.Lock(ctx, fmt.Sprint(i))
		require.NoError(t, err)
		require.NoError(t, lease.Renew(ctx))
		require.NoError(t, lease.Unlock(ctx))
	}
	lease, err := holder.Lock(ctx, "k")
	require.NoError(t, err)
	done := make(chan error, 1)
	go func() {
		_, err := waiter.Lock(ctx, "k")
		done <- err
	}()
	<-waiting.c
	require.NoError(t, lease.Unlock(ctx))
	require.NoError(t, <-done)
	n := -1
	require.NoError(t, s.ask(ctx, &n, `SELECT count(*) FROM pg_stat_activity WHERE query ILIKE 'LISTEN%'`))
	require.Zero(t, n, "no session listens on a connection that others use, too")
}

// A cancelled command costs a connection, and no time.
func TestCancelledCommand(t *testing.T) {
	t.Parallel()
	s, ctx := startServer(t), t.Context()
	cfg, err := pgxpool.ParseConfig(s.url("app", "app"))
	require.NoError(t, err)
	cfg.ShouldPing = func(context.Context, pgxpool.ShouldPingParams) bool { return false } // the Release is to be sent
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	require.NoError(t, err)
	defer pool.Close()
	d := postgres.NewDriver(pool)
	defer d.Close()
	c := driver.Claim{Key: "k", ID: "i", Owner: "i", TTL: time.Minute}
	_, err = d.Acquire(ctx, driver.Request{Claim: c})
	require.NoError(t, err)
	s.Freeze()
	short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	start := time.Now()
	err = d.Release(short, c)
	require.Error(t, err)
	require.True(t, driver.MaybeApplied(err))
	require.Less(t, time.Since(start), 2*time.Second)
	s.Thaw()
	if err := d.Release(ctx, c); err != nil {
		require.ErrorIs(t, err, driver.ErrLost, "the first one went through")
	}
}

func TestConnectionRefused(t *testing.T) {
	t.Parallel()
	d := postgres.NewDriver(newPool(t, "postgres:///app?host="+t.TempDir()))
	defer d.Close()
	_, err := d.Acquire(t.Context(), driver.Request{Claim: driver.Claim{Key: "k", ID: "i", Owner: "i", TTL: time.Minute}})
	require.Error(t, err)
	require.False(t, driver.MaybeApplied(err))
	require.False(t, driver.IsPermanent(err))
}

func BenchmarkPair(b *testing.B) {
	s, ctx := startServer(b), context.Background()
	l := newLocker(b, s.pool(b, ""))
	for b.Loop() {
		lease, err := l.Lock(ctx, "k")
		if err == nil {
			err = lease.Unlock(ctx)
		}
		require.NoError(b, err)
	}
}

// BenchmarkCancel is a command that is cancelled at once, and one that needs a connection
// again.
func BenchmarkCancel(b *testing.B) {
	s, ctx := startServer(b), context.Background()
	pool := s.pool(b, "")
	for b.Loop() {
		short, cancel := context.WithTimeout(ctx, 2*time.Millisecond)
		_, err := pool.Exec(short, "SELECT pg_sleep(1)")
		cancel()
		require.Error(b, err)
		require.NoError(b, pool.Ping(ctx))
	}
}

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
	"github.com/stretchr/testify/require"

	"github.com/distlock/locker"
	"github.com/distlock/locker/conformance"
	"github.com/distlock/locker/driver"
	"github.com/distlock/locker/internal/servers"
	"github.com/distlock/locker/internal/test/pace"
	"github.com/distlock/locker/strategy/postgres"
)

// bounce starts a PgBouncer in transaction mode, with two connections to the server, and returns its URL.
func (s *server) bounce(tb testing.TB) (url string) {
	tb.Helper()
	binary, err := exec.LookPath("pgbouncer")
	require.NoError(tb, err, "make postgres installs PgBouncer")
	write := func(name, content string) string {
		path := filepath.Join(s.Dir, name)
		require.NoError(tb, os.WriteFile(path, []byte(content), 0o644))
		return path
	}
	users := write("users.txt", `"app" ""`+"\n")
	ini := write("pgbouncer.ini", fmt.Sprintf("[databases]\napp = host=%[1]s\n[pgbouncer]\npool_mode = transaction\ndefault_pool_size = 2\n"+
		"listen_addr =\nunix_socket_dir = %[1]s\nlisten_port = 6432\nauth_type = trust\nauth_file = %[2]s\npidfile = %[1]s/pgbouncer.pid\n"+
		"logfile = %[1]s/pgbouncer.log\n", s.Dir, users))
	bouncer := servers.Command(binary, ini)
	require.NoError(tb, bouncer.Start())
	tb.Cleanup(func() {
		_ = bouncer.Process.Kill()
		_ = bouncer.Wait()
	})
	url = s.url("app", "app") + "&port=6432&default_query_exec_mode=exec"
	pace.Eventually(tb, 10*time.Second, "PgBouncer answers", func() bool {
		conn, err := pgx.Connect(context.Background(), url)
		if err == nil {
			err = conn.Close(context.Background())
		}
		return err == nil
	})
	return url
}

// bounced is a harness whose drivers reach the server through a PgBouncer.
type bounced struct {
	tb  testing.TB
	url string
}

func newBounced(tb testing.TB) conformance.DriverHarness {
	tb.Helper()
	return bounced{tb, newHarness(tb).(*harness).s.bounce(tb)}
}

func (b bounced) NewDriver() (driver.Driver, error) {
	return postgres.NewDriver(newPool(b.tb, b.url+"&pool_max_conns=4")), nil
}

func (bounced) Capabilities() conformance.Capabilities {
	return conformance.Capabilities{Name: "postgres through PgBouncer", Fencing: true, Admin: true, Permits: true}
}

// Through PgBouncer in transaction mode permits keep their promises.
func TestConformancePgBouncer(t *testing.T) {
	conformance.Run(t, conformance.OfDriver(newBounced), conformance.WithOnly("^capacity/"))
}

// Through PgBouncer in transaction mode locks work and waiters poll.
func TestPgBouncer(t *testing.T) {
	t.Parallel()
	s, ctx := startServer(t), t.Context()
	url := s.bounce(t)
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

// Through PgBouncer in transaction mode a transaction locks a key until its end.
func TestPgBouncerLockTx(t *testing.T) {
	t.Parallel()
	s, ctx := startServer(t), t.Context()
	pool := newPool(t, s.bounce(t))
	first, err := pool.Begin(ctx)
	require.NoError(t, err)
	defer func() { _ = first.Rollback(context.Background()) }()
	second, err := pool.Begin(ctx)
	require.NoError(t, err)
	defer func() { _ = second.Rollback(context.Background()) }()
	require.NoError(t, postgres.LockTx(ctx, first, "k"))
	locked, err := postgres.TryLockTx(ctx, second, "k")
	require.NoError(t, err)
	require.False(t, locked)
	got := make(chan error, 1)
	go func() { got <- postgres.LockTx(ctx, second, "k") }()
	waitForLock(t, s, 1)
	require.NoError(t, first.Commit(ctx))
	require.NoError(t, <-got)
	require.NoError(t, second.Commit(ctx))
}

package mysql_test

import (
	"context"
	"database/sql"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/distlock/locker"
	"github.com/distlock/locker/driver"
	"github.com/distlock/locker/internal/test/pace"
	lockmysql "github.com/distlock/locker/strategy/mysql"
)

// replicated starts two servers, of which the second replicates the first.
func replicated(t *testing.T, format string) (primary, replica *server) {
	t.Helper()
	primary = startServer(t, "--server-id=1", "--log-bin=binlog", "--sync-binlog=0", "--binlog-format="+format)
	replica = startServer(t, "--server-id=2")
	require.NoError(t, primary.admin(t.Context(), `CREATE USER replica; GRANT REPLICATION SLAVE ON *.* TO replica`))
	from := `CHANGE REPLICATION SOURCE TO SOURCE_HOST = '127.0.0.1', SOURCE_PORT = %d, SOURCE_USER = 'replica', GET_SOURCE_PUBLIC_KEY = 1`
	if primary.isMariaDB() {
		from = `CHANGE MASTER TO MASTER_HOST = '127.0.0.1', MASTER_PORT = %d, MASTER_USER = 'replica', MASTER_USE_GTID = slave_pos`
	}
	require.NoError(t, replica.admin(t.Context(), fmt.Sprintf(from+`; START REPLICA`, primary.Ports[0])))
	return primary, replica
}

// caughtUp returns when the tables are the same on both, and what they are.
func caughtUp(t *testing.T, primary, replica *server) string {
	t.Helper()
	const rows = `SELECT CONCAT(
		COALESCE((SELECT GROUP_CONCAT(lock_key, ' ', id, ' ', owner, ' ', token, ' ', last_token, ' ', since, ' ', expires, ' ', forget ORDER BY lock_key) FROM app.locker_locks), ''),
		COALESCE((SELECT GROUP_CONCAT(HEX(claim), ' ', id, ' ', era, ' ', permits, ' ', token, ' ', since, ' ', expires, ' ', forget ORDER BY hash, claim) FROM app.locker_locks_permits), ''))`
	for _, s := range []*server{primary, replica} { // one connection: MySQL would cut the text after 1,024 bytes
		require.NoError(t, s.admin(t.Context(), `SET SESSION group_concat_max_len = 1000000`))
	}
	var want, got string
	pace.Eventually(t, 20*time.Second, "the replica has the tables as they are", func() bool {
		require.NoError(t, primary.ask(t.Context(), &want, rows))
		if err := replica.ask(t.Context(), &got, rows); err != nil {
			require.ErrorContains(t, err, "doesn't exist")
		}
		return got == want
	})
	return got
}

// A replica has the same times and tokens, whatever is in the binary log.
func TestReplicaHasTheSameTimes(t *testing.T) {
	t.Parallel()
	for _, format := range []string{"STATEMENT", "MIXED", "ROW"} {
		t.Run(format, func(t *testing.T) {
			t.Parallel()
			primary, replica := replicated(t, format)
			ctx := t.Context()
			l := newLocker(t, primary.pool(t, 0, "?time_zone='%2B05:45'"), locker.WithTTL(time.Minute))
			var leases []*locker.Lease
			for i := range 5 {
				cycle(t, l, fmt.Sprint(i))
				lease, err := l.Lock(ctx, fmt.Sprint(i))
				require.NoError(t, err)
				leases = append(leases, lease)
			}
			require.NoError(t, leases[0].Renew(ctx))
			require.NoError(t, leases[1].Unlock(ctx))
			require.Contains(t, caughtUp(t, primary, replica), leases[0].Owner())

			leases = nil
			sem, err := locker.NewSemaphore(l, "permits", 3)
			require.NoError(t, err)
			for range 3 {
				lease, err := sem.Acquire(ctx)
				require.NoError(t, err)
				leases = append(leases, lease)
			}
			_, err = sem.TryAcquire(ctx)
			require.ErrorIs(t, err, locker.ErrNotAcquired)
			require.NoError(t, leases[0].Renew(ctx))
			require.NoError(t, leases[1].Unlock(ctx))
			require.Contains(t, caughtUp(t, primary, replica), "permits 3 2 ")
		})
	}
}

// After a fail-over the old primary takes no writes and keeps its connections. The pool would
// stay on it for ever; a Locker finds the new primary, with its locks.
func TestFailOverThatKeepsConnections(t *testing.T) {
	t.Parallel()
	old, fresh := replicated(t, "MIXED")
	ctx := t.Context()
	var primary atomic.Pointer[server] // a name that moves
	primary.Store(old)
	cfg := config("app", "app")
	cfg.Net, cfg.Addr = "tcp", "primary:3306"
	cfg.DialFunc = func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, primary.Load().addr())
	}
	connector, err := mysql.NewConnector(cfg)
	require.NoError(t, err)
	db := sql.OpenDB(connector)
	t.Cleanup(func() { _ = db.Close() })
	db.SetMaxOpenConns(3)
	db.SetMaxIdleConns(3)
	waiting := newWaiting()
	l := newLocker(t, db, locker.WithTTL(time.Minute))
	other := newLocker(t, db, locker.WithTTL(time.Minute), locker.WithObserver(waiting))
	lease, err := l.Lock(ctx, "k")
	require.NoError(t, err)
	next := make(chan *locker.Lease, 1)
	go func() {
		defer close(next)
		if l, err := other.Lock(ctx, "k"); err == nil {
			next <- l
		} else {
			t.Error(err)
		}
	}()
	<-waiting.c
	require.Contains(t, caughtUp(t, old, fresh), lease.Owner())

	require.NoError(t, old.admin(ctx, `SET GLOBAL read_only = 1`))
	require.ErrorContains(t, lease.Renew(ctx), "the server takes no writes")
	require.NoError(t, fresh.admin(ctx, `STOP REPLICA`))
	primary.Store(fresh)
	pace.Eventually(t, 20*time.Second, "the lease is renewed on the new primary", func() bool { return lease.Renew(ctx) == nil })
	h, err := newLocker(t, fresh.pool(t, 0, "")).Inspect(ctx, "k")
	require.NoError(t, err)
	require.Equal(t, lease.Owner(), h.Owner)
	require.Empty(t, next)
	require.NoError(t, lease.Unlock(ctx))
	second := <-next
	require.NotNil(t, second)
	require.Greater(t, second.Token(), lease.Token())
	require.NoError(t, second.Unlock(ctx))
}

// A server that takes no writes has applied nothing, and the connection to it is closed: the next one may reach another
// server.
func TestServerTakesNoWrites(t *testing.T) {
	t.Parallel()
	s, ctx := startServer(t), t.Context()
	cycle(t, newLocker(t, s.pool(t, 0, "")), "warm-up") // makes the table
	db := s.pool(t, 1, "")
	d := lockmysql.NewDriver(db)
	defer d.Close()
	connection := func() (id int) {
		require.NoError(t, db.QueryRowContext(ctx, `SELECT CONNECTION_ID()`).Scan(&id))
		return id
	}
	for _, number := range []int{1290, 1836, 1792, 1047} {
		require.NoError(t, s.admin(ctx, fmt.Sprintf(`CREATE TRIGGER app.fail BEFORE INSERT ON app.locker_locks FOR EACH ROW
			SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = %d, MESSAGE_TEXT = 'no writes here'`, number)))
		before := connection()
		require.Equal(t, before, connection(), "the pool has one connection")
		_, err := d.Acquire(ctx, driver.Request{Claim: driver.Claim{Key: "k", ID: "i", Owner: "i", TTL: time.Minute}})
		require.ErrorContains(t, err, "the server takes no writes", number)
		require.False(t, driver.MaybeApplied(err), number)
		require.False(t, driver.IsPermanent(err), number)
		require.NotEqual(t, before, connection(), number)
		require.NoError(t, s.admin(ctx, `DROP TRIGGER app.fail`))
	}
}

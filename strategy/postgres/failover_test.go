package postgres_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/distlock/locker"
	"github.com/distlock/locker/internal/servers"
	"github.com/distlock/locker/internal/test/pace"
)

var replicated = []string{"wal_level=replica", "max_wal_senders=4"}

// standby starts a server that replicates s.
func (s *server) standby(t *testing.T) *server {
	t.Helper()
	b, err := servers.Postgres(append(replicated, quick...)...)
	require.NoError(t, err)
	t.Cleanup(b.Stop)
	require.NoError(t, os.RemoveAll(b.Data()))
	bin, err := servers.PostgresPrograms()
	require.NoError(t, err)
	out, err := servers.Command(filepath.Join(bin, "pg_basebackup"), "-D", b.Data(), "-h", s.Dir, "-U", "postgres",
		"-R", "--checkpoint=fast", "--no-sync").CombinedOutput()
	require.NoError(t, err, string(out))
	replica := &server{b}
	require.NoError(t, replica.start())
	return replica
}

// After a fail-over the old primary takes no writes and keeps its connections. The pool would
// stay on it for ever; a Locker finds the new primary, with its locks.
func TestFailOverThatKeepsConnections(t *testing.T) {
	t.Parallel()
	old := startServer(t, replicated...)
	fresh, ctx := old.standby(t), t.Context()
	pool := newPool(t, "postgres://app@/app?sslmode=disable&host="+old.Dir+","+fresh.Dir+"&target_session_attrs=read-write&pool_max_conns=3&pool_min_conns=3")
	waiting := newWaiting()
	l := newLocker(t, pool, locker.WithTTL(time.Minute))
	other := newLocker(t, pool, locker.WithTTL(time.Minute), locker.WithObserver(waiting))
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
	pace.Eventually(t, 20*time.Second, "the standby has the lock", func() bool {
		n := 0
		require.NoError(t, fresh.ask(ctx, &n, `SELECT count(*) FROM pg_class WHERE relname = 'locker_locks'`))
		if n == 1 {
			require.NoError(t, fresh.ask(ctx, &n, `SELECT count(*) FROM public.locker_locks WHERE id <> ''`))
		}
		return n == 1
	})

	h := &harness{s: old}
	require.NoError(t, h.readOnly(ctx, "on"))
	require.ErrorContains(t, lease.Renew(ctx), "the server takes no writes")
	require.NoError(t, fresh.admin(ctx, `SELECT pg_promote(true, 60)`))
	pace.Eventually(t, 20*time.Second, "the lease is renewed on the new primary", func() bool { return lease.Renew(ctx) == nil })
	admin := newLocker(t, fresh.pool(t, "")).(*locker.Client)
	holder, err := admin.Inspect(ctx, "k")
	require.NoError(t, err)
	require.Equal(t, lease.Owner(), holder.Owner)
	require.Empty(t, next)
	require.NoError(t, lease.Unlock(ctx))
	second := <-next
	require.NotNil(t, second)
	require.Greater(t, second.Token(), lease.Token())
	require.NoError(t, second.Unlock(ctx))
}

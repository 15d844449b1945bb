package postgres_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/distlock/locker/internal/test/pace"
)

// With enable_seqscan=off, as documented, no plan goes through the whole table, also one that
// was made when the table was small and vacuumed.
func TestPlansUseTheIndexes(t *testing.T) {
	t.Parallel()
	s, ctx := startServer(t, "autovacuum=off"), t.Context()
	pool := s.pool(t, "&enable_seqscan=off&pool_max_conns=1")
	l := newLocker(t, pool)
	use := func(key string) {
		lease, err := l.Lock(ctx, key)
		require.NoError(t, err)
		require.NoError(t, lease.Renew(ctx))
		require.NoError(t, lease.Unlock(ctx))
	}
	use("first")
	require.NoError(t, s.admin(ctx, `VACUUM ANALYZE `+table))
	for i := range 50 {
		use(fmt.Sprint(i))
	}
	require.NoError(t, l.Close())
	pool.Close() // a session reports what it has done at its end
	pace.Eventually(t, 20*time.Second, "the statistics have come", func() bool {
		n := 0
		require.NoError(t, s.ask(ctx, &n, `SELECT n_tup_ins FROM pg_stat_user_tables WHERE relname = 'locker_locks'`))
		return n >= 50
	})
	n := -1
	require.NoError(t, s.ask(ctx, &n, `SELECT seq_scan FROM pg_stat_user_tables WHERE relname = 'locker_locks'`))
	require.LessOrEqual(t, n, 2, "the making of two indexes is all that goes through the table")
}

// The query of docs/operating.md names the session whose snapshot keeps old versions of rows.
func TestOldSnapshotIsFound(t *testing.T) {
	t.Parallel()
	s, ctx := startServer(t), t.Context()
	l := newLocker(t, s.pool(t, ""))
	old, err := s.connect(ctx, "postgres", "app")
	require.NoError(t, err)
	defer func() { _ = old.Close(context.Background()) }()
	tx, err := old.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	require.NoError(t, err)
	_, err = tx.Exec(ctx, `SELECT 'a report'`)
	require.NoError(t, err)
	for range 3 {
		lease, err := l.Lock(ctx, "k")
		require.NoError(t, err)
		require.NoError(t, lease.Unlock(ctx))
	}
	app, err := s.connect(ctx, "app", "app") // which may see who, though not what
	require.NoError(t, err)
	defer func() { _ = app.Close(context.Background()) }()
	ran := 0
	for _, b := range pageBlocks(t, "sql") {
		if !strings.Contains(b.Text, "backend_xmin") {
			continue
		}
		ran++
		rows, err := app.Query(ctx, b.Text)
		require.NoError(t, err)
		require.True(t, rows.Next(), b.Name())
		first, err := rows.Values()
		require.NoError(t, err)
		rows.Close()
		require.EqualValues(t, old.PgConn().PID(), first[0], b.Name())
		require.Greater(t, first[1], int32(3), b.Name())
	}
	require.Equal(t, 1, ran)
}

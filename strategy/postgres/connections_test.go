package postgres_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/distlock/locker"
	"github.com/distlock/locker/driver"
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

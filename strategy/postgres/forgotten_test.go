package postgres_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/distlock/locker"
	"github.com/distlock/locker/strategy/postgres"
)

// unwritten is for a server whose log is on disk when a commit waits for it, and not by itself.
var unwritten = []string{"wal_writer_delay=10s", "wal_writer_flush_after=1GB", "autovacuum=off", "synchronous_commit=on"}

// A release that the server forgets when it crashes leaves the key to its claim until the TTL ends. The
// next token is greater.
func TestReleaseThatACrashForgets(t *testing.T) {
	t.Parallel()
	s, ctx := startServer(t, unwritten...), t.Context()
	l := newLocker(t, s.pool(t, ""), locker.WithTTL(3*time.Second))
	cycle(t, l, "warm-up") // makes the table; the first release waits for the log
	lease, err := l.Lock(ctx, "k")
	require.NoError(t, err)
	require.NoError(t, lease.Unlock(ctx))
	s.Crash()
	require.NoError(t, s.start())

	after := newLocker(t, s.pool(t, ""))
	holder, err := after.(*locker.Client).Inspect(ctx, "k")
	require.NoError(t, err)
	require.True(t, holder.Held, "want the release forgotten, or this test shows nothing")
	next, err := after.Lock(ctx, "k")
	require.NoError(t, err)
	require.Greater(t, next.Token(), lease.Token())
}

// A release is kept if a grant after it is, and a grant is kept once Lock has returned.
func TestGrantsAfterAReleaseSurviveACrash(t *testing.T) {
	t.Parallel()
	s, ctx := startServer(t, unwritten...), t.Context()
	l := newLocker(t, s.pool(t, ""), locker.WithTTL(time.Minute))
	cycle(t, l, "warm-up")
	first := cycle(t, l, "k")
	lease, err := l.Lock(ctx, "k") // in one statement, as the row is known to be there
	require.NoError(t, err)
	require.Greater(t, lease.Token(), first)
	s.Crash()
	require.NoError(t, s.start())

	after := newLocker(t, s.pool(t, ""))
	_, err = after.TryLock(ctx, "k")
	require.ErrorIs(t, err, locker.ErrNotAcquired)
	holder, err := after.(*locker.Client).Inspect(ctx, "k")
	require.NoError(t, err)
	require.Equal(t, lease.Owner(), holder.Owner)
	require.GreaterOrEqual(t, holder.Token, lease.Token())
}

// A key that is locked for long waits for the log: nobody wants it forgotten.
func TestReleaseOfALongLeaseSurvivesACrash(t *testing.T) {
	t.Parallel()
	s, ctx := startServer(t, unwritten...), t.Context()
	l := newLocker(t, s.pool(t, ""), locker.WithTTL(time.Hour))
	cycle(t, l, "warm-up")
	cycle(t, l, "k")
	s.Crash()
	require.NoError(t, s.start())
	_, err := newLocker(t, s.pool(t, "")).TryLock(ctx, "k")
	require.NoError(t, err)
}

// What a Locker remembers of a row that it has released may be wrong: another one holds the key, or
// the row is gone.
func TestReleasedRowThatChanged(t *testing.T) {
	t.Parallel()
	s, ctx := startServer(t), t.Context()
	l, other := newLocker(t, s.pool(t, "")), newLocker(t, s.pool(t, ""))
	first := cycle(t, l, "k")
	held, err := other.Lock(ctx, "k")
	require.NoError(t, err)
	require.Greater(t, held.Token(), first)
	_, err = l.TryLock(ctx, "k")
	require.ErrorIs(t, err, locker.ErrNotAcquired)
	require.NoError(t, held.Unlock(ctx))

	last := cycle(t, l, "k")
	require.Greater(t, last, held.Token())
	require.NoError(t, s.admin(ctx, `DELETE FROM `+table))
	require.Greater(t, cycle(t, l, "k"), last)
	unfenced := newLocker(t, s.pool(t, ""), locker.WithoutFencing(), postgres.WithoutNotify())
	for range 3 {
		require.Zero(t, cycle(t, unfenced, "unfenced"))
	}
}

// cycle takes key and gives it back. It returns the token.
func cycle(t *testing.T, l locker.Locker, key string) int64 {
	t.Helper()
	lease, err := l.Lock(t.Context(), key)
	require.NoError(t, err)
	require.NoError(t, lease.Unlock(t.Context()))
	return lease.Token()
}

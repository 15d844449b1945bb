//go:build unix

package postgres_test

import (
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/distlock/locker"
	"github.com/distlock/locker/internal/test/pace"
	"github.com/distlock/locker/strategy/postgres"
)

// startUnwritten starts a server whose log gets to the disk when a commit waits for it, and never by
// itself: the process that writes it stands still. crash ends the server, and starts it again.
func startUnwritten(t *testing.T) (s *server, crash func()) {
	t.Helper()
	s = startServer(t, "autovacuum=off", "synchronous_commit=on", "restart_after_crash=off")
	var pid int
	require.NoError(t, s.ask(t.Context(), &pid, `SELECT pid FROM pg_stat_activity WHERE backend_type = 'walwriter'`))
	writer, err := os.FindProcess(pid)
	require.NoError(t, err)
	require.NoError(t, writer.Signal(syscall.SIGSTOP))
	return s, func() {
		t.Helper()
		require.NoError(t, writer.Kill()) // the server ends without writing, too
		pace.Eventually(t, 20*time.Second, "the process has gone, which uses the server's memory", func() bool {
			return writer.Signal(syscall.Signal(0)) != nil
		})
		s.Crash()
		require.NoError(t, s.start())
	}
}

// A release that the server forgets when it crashes leaves the key to its claim until the TTL ends. The
// next token is greater.
func TestReleaseThatACrashForgets(t *testing.T) {
	t.Parallel()
	s, crash := startUnwritten(t)
	ctx := t.Context()
	l := newLocker(t, s.pool(t, ""), locker.WithTTL(time.Minute))
	cycle(t, l, "warm-up") // makes the table; the first release waits for the log
	lease, err := l.Lock(ctx, "k")
	require.NoError(t, err)
	require.NoError(t, lease.Unlock(ctx))
	crash()

	claims := 0
	require.NoError(t, s.ask(ctx, &claims, `SELECT count(*) FROM `+table+` WHERE id <> ''`))
	require.Equal(t, 1, claims, "want the release forgotten, or this test shows nothing")
	require.NoError(t, s.admin(ctx, `UPDATE `+table+` SET expires = least(expires, clock_timestamp())`)) // its TTL is over
	require.Greater(t, cycle(t, newLocker(t, s.pool(t, "")), "k"), lease.Token())
}

// A release is kept if a grant after it is, and a grant is kept once Lock has returned.
func TestGrantsAfterAReleaseSurviveACrash(t *testing.T) {
	t.Parallel()
	s, crash := startUnwritten(t)
	ctx := t.Context()
	l := newLocker(t, s.pool(t, ""), locker.WithTTL(time.Minute))
	cycle(t, l, "warm-up")
	first := cycle(t, l, "k")
	lease, err := l.Lock(ctx, "k") // in one statement, as the row is known to be there
	require.NoError(t, err)
	require.Greater(t, lease.Token(), first)
	crash()

	last := int64(0)
	require.NoError(t, s.ask(ctx, &last, `SELECT token FROM `+table+` WHERE id <> ''`))
	require.Equal(t, lease.Token(), last)
}

// A key that is locked for long waits for the log: nobody wants it forgotten.
func TestReleaseOfALongLeaseSurvivesACrash(t *testing.T) {
	t.Parallel()
	s, crash := startUnwritten(t)
	ctx := t.Context()
	l := newLocker(t, s.pool(t, ""), locker.WithTTL(time.Hour))
	cycle(t, l, "warm-up")
	cycle(t, l, "k")
	crash()
	_, err := newLocker(t, s.pool(t, "")).TryLock(ctx, "k")
	require.NoError(t, err)
}

// A Locker remembers the rows that it has released, and may be wrong: another Locker holds the key, or
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

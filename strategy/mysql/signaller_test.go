package mysql_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/distlock/locker"
	"github.com/distlock/locker/driver"
	"github.com/distlock/locker/internal/test/signaltest"
	lockmysql "github.com/distlock/locker/strategy/mysql"
)

func signaller(t *testing.T, s *server) driver.Signaller {
	t.Helper()
	d := lockmysql.NewDriver(s.pool(t, 4, ""))
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	return d.(driver.Signaller)
}

func rowsOf(t *testing.T, s *server) (n int) {
	t.Helper()
	require.NoError(t, s.ask(t.Context(), &n, `SELECT COUNT(*) FROM app.locker_locks`))
	return n
}

// A signal reaches the Locker whose claim it is about, with all bytes of its key, and those that are sent at once all
// do. They are no locks, and are deleted once they have arrived.
func TestSignalsReachTheirLocker(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	sender := signaller(t, s)
	sent := driver.Signal{Kind: driver.SignalRequest, Key: "a {key}\x00 of bytes ü", Claim: signaltest.LockerID + ":7?host=a&pid=1"}
	hears := signaller(t, s)
	l, other := signaltest.Listen(t, hears, signaltest.LockerID), signaltest.Listen(t, hears, strings.Replace(signaltest.LockerID, "0", "1", 1))
	defer other.Close()
	want := map[driver.Signal]bool{}
	for _, sent.Kind = range []driver.SignalKind{driver.SignalRequest, driver.SignalBroken, 'x'} {
		require.NoError(t, sender.Signal(t.Context(), sent))
		want[sent] = true
	}
	for range 3 {
		got := signaltest.Heard(t, l)
		require.True(t, want[got], got)
		delete(want, got)
	}
	sent.Key = strings.Repeat("k", locker.MaxKeyLen)
	require.NoError(t, sender.Signal(t.Context(), sent))
	require.Equal(t, sent, signaltest.Heard(t, l))
	require.Empty(t, other.C())
	require.ErrorIs(t, sender.Signal(t.Context(), driver.Signal{Claim: "an owner"}), driver.ErrInvalid)
	require.Eventually(t, func() bool { return rowsOf(t, s) == 0 }, 10*time.Second, 10*time.Millisecond)
	l.Close()
	l.Close()

	require.NoError(t, sender.Signal(t.Context(), sent), "nobody listens")
	for h, err := range newLocker(t, s.pool(t, 0, "")).Holders(t.Context(), "*") {
		require.NoError(t, err)
		require.Fail(t, "a signal is shown as a lock", h.Key)
	}
	require.NoError(t, s.admin(t.Context(), `UPDATE app.locker_locks SET forget = forget - 11000000`))
	_, err := s.pool(t, 1, "").ExecContext(t.Context(), lockmysql.Sweep())
	require.NoError(t, err)
	require.Zero(t, rowsOf(t, s), "a signal that nobody looks for ends")
}

// A Locker whose connection broke hears what was sent meanwhile when it listens again.
func TestSignalsWait(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	d, sender := signaller(t, s), signaller(t, s)
	l := signaltest.Listen(t, d, signaltest.LockerID)
	s.Freeze()
	for range l.C() {
	}
	l.Close()
	s.Thaw()
	sent := driver.Signal{Kind: driver.SignalRequest, Key: "k", Claim: signaltest.LockerID + ":1"}
	require.NoError(t, sender.Signal(t.Context(), sent))
	l = signaltest.Listen(t, d, signaltest.LockerID)
	defer l.Close()
	require.Equal(t, sent, signaltest.Heard(t, l))
}

// To look for signals reads no more rows than there are signals.
func TestLookingForSignalsIsCheap(t *testing.T) {
	t.Parallel()
	s, ctx := startServer(t), t.Context()
	s.makeTable(t)
	for range 20 {
		require.NoError(t, s.admin(ctx, `INSERT INTO app.locker_locks (hash, lock_key, id, forget)
			SELECT UNHEX(SHA2(UUID(), 256)), 'k', 'i', 2 * `+now+` FROM (SELECT 1 FROM information_schema.collations LIMIT 100) AS some`))
	}
	first := s.rowsRead(t)
	second := s.rowsRead(t)
	l := signaltest.Listen(t, signaller(t, s), signaltest.LockerID) // it has looked
	n := s.rowsRead(t) - second - (second - first)
	l.Close()
	require.LessOrEqual(t, n, 25.0)
}

package postgres_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/distlock/locker"
	"github.com/distlock/locker/driver"
	"github.com/distlock/locker/internal/test/signaltest"
	"github.com/distlock/locker/strategy/postgres"
)

func signaller(t *testing.T, s *server) driver.Signaller {
	t.Helper()
	d := postgres.NewDriver(s.pool(t, ""))
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	return d.(driver.Signaller)
}

// A signal reaches the Locker whose claim it is about, with all bytes of its key. What others
// send on the channel is no signal, and wakes nobody.
func TestSignalsReachTheirLocker(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	sender := signaller(t, s)
	sent := driver.Signal{Kind: driver.SignalRequest, Key: "a {key}\x00 of bytes ü", Claim: signaltest.LockerID + ":7?host=a&pid=1"}
	require.NoError(t, sender.Signal(t.Context(), sent), "nobody listens")
	hears := signaller(t, s)
	l, other := signaltest.Listen(t, hears, signaltest.LockerID), signaltest.Listen(t, hears, strings.Replace(signaltest.LockerID, "0", "1", 1))
	w, err := hears.(driver.Notifier).Watch(t.Context(), "k")
	require.NoError(t, err)
	defer w.Close()
	for _, payload := range []string{"", " ", signaltest.LockerID, signaltest.LockerID + " ", signaltest.LockerID + " r", signaltest.LockerID + " r x !", signaltest.LockerID + " rr x eA=="} {
		require.NoError(t, s.admin(t.Context(), "NOTIFY locker_released, '"+payload+"'"))
	}
	for _, sent.Kind = range []driver.SignalKind{driver.SignalRequest, driver.SignalBroken} {
		require.NoError(t, sender.Signal(t.Context(), sent))
		require.Equal(t, sent, signaltest.Heard(t, l))
	}
	require.Empty(t, other.C())
	require.Empty(t, w.C())
	require.ErrorIs(t, sender.Signal(t.Context(), driver.Signal{Claim: "an owner"}), driver.ErrInvalid)
	sent.Key = strings.Repeat("k", locker.MaxKeyLen)
	require.ErrorIs(t, sender.Signal(t.Context(), sent), driver.ErrInvalid)
	sent.Key = strings.Repeat("k", 5<<10)
	require.NoError(t, sender.Signal(t.Context(), sent))
	require.Equal(t, sent, signaltest.Heard(t, l))
}

// The Locker learns that its connection has ended, and may listen again.
func TestListenerEnds(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	d := signaller(t, s)
	l := signaltest.Listen(t, d, signaltest.LockerID)
	require.NoError(t, s.admin(t.Context(), "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN %' AND pid <> pg_backend_pid()"))
	for range l.C() {
	}
	l.Close()
	l = signaltest.Listen(t, d, signaltest.LockerID)
	sent := driver.Signal{Kind: driver.SignalRequest, Key: "k", Claim: signaltest.LockerID + ":1"}
	require.NoError(t, signaller(t, s).Signal(t.Context(), sent))
	require.Equal(t, sent, signaltest.Heard(t, l))
	l.Close()
}

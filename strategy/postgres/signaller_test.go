package postgres_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/distlock/locker"
	"github.com/distlock/locker/driver"
	"github.com/distlock/locker/strategy/postgres"
)

const lockerID = "0194f2a4-58c1-4d7e-9b1a-5f3c2e1d0a9b"

func signaller(t *testing.T, s *server) driver.Signaller {
	t.Helper()
	d := postgres.NewDriver(s.pool(t, ""))
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	return d.(driver.Signaller)
}

func listen(t *testing.T, d driver.Signaller, locker string) driver.Listener {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	l, err := d.Listen(ctx, locker)
	require.NoError(t, err)
	return l
}

func heard(t *testing.T, l driver.Listener) driver.Signal {
	t.Helper()
	select {
	case s, ok := <-l.C():
		require.True(t, ok, "C was closed")
		return s
	case <-time.After(30 * time.Second):
		require.Fail(t, "no signal came")
		return driver.Signal{}
	}
}

// A signal reaches the Locker whose claim it is about, with all bytes of its key. What others
// send on the channel is no signal, and wakes nobody.
func TestSignalsReachTheirLocker(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	sender := signaller(t, s)
	sent := driver.Signal{Kind: driver.SignalRequest, Key: "a {key}\x00 of bytes ü", Claim: lockerID + ":7?host=a&pid=1"}
	require.NoError(t, sender.Signal(t.Context(), sent), "nobody listens")
	hears := signaller(t, s)
	l, other := listen(t, hears, lockerID), listen(t, hears, strings.Replace(lockerID, "0", "1", 1))
	w, err := hears.(driver.Notifier).Watch(t.Context(), "k")
	require.NoError(t, err)
	defer w.Close()
	for _, payload := range []string{"", " ", lockerID, lockerID + " ", lockerID + " r", lockerID + " r x !", lockerID + " rr x eA=="} {
		require.NoError(t, s.admin(t.Context(), "NOTIFY locker_released, '"+payload+"'"))
	}
	for _, sent.Kind = range []driver.SignalKind{driver.SignalRequest, driver.SignalBroken} {
		require.NoError(t, sender.Signal(t.Context(), sent))
		require.Equal(t, sent, heard(t, l))
	}
	require.Empty(t, other.C())
	require.Empty(t, w.C())
	require.ErrorIs(t, sender.Signal(t.Context(), driver.Signal{Claim: "an owner"}), driver.ErrInvalid)
	sent.Key = strings.Repeat("k", locker.MaxKeyLen)
	require.ErrorIs(t, sender.Signal(t.Context(), sent), driver.ErrInvalid)
	sent.Key = strings.Repeat("k", 5<<10)
	require.NoError(t, sender.Signal(t.Context(), sent))
	require.Equal(t, sent, heard(t, l))
}

// The Locker learns that its connection has ended, and may listen again.
func TestListenerEnds(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	d := signaller(t, s)
	l := listen(t, d, lockerID)
	require.NoError(t, s.admin(t.Context(), "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN %' AND pid <> pg_backend_pid()"))
	for range l.C() {
	}
	l.Close()
	l = listen(t, d, lockerID)
	sent := driver.Signal{Kind: driver.SignalRequest, Key: "k", Claim: lockerID + ":1"}
	require.NoError(t, signaller(t, s).Signal(t.Context(), sent))
	require.Equal(t, sent, heard(t, l))
	l.Close()
}

package etcd_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/distlock/locker"
	"github.com/distlock/locker/driver"
	"github.com/distlock/locker/internal/test/signaltest"
	"github.com/distlock/locker/strategy/etcd"
)

const signalsKey = "locker/signals/" + signaltest.LockerID

func signaller(t *testing.T, client *clientv3.Client) driver.Signaller {
	t.Helper()
	d := etcd.NewDriver(client)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	return d.(driver.Signaller)
}

// A signal reaches the Locker whose claim it is about, with all bytes of its key, and those that are sent at once all
// do. What others put into the key is no signal. Where nobody listens nothing is put.
func TestSignalsReachTheirLocker(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	admin := newClient(t, s)
	sender := signaller(t, newClient(t, s))
	sent := driver.Signal{Kind: driver.SignalRequest, Key: "a {key}\x00 of bytes ü", Claim: signaltest.LockerID + ":7?host=a&pid=1"}
	require.NoError(t, sender.Signal(t.Context(), sent), "nobody listens")
	res, err := admin.Get(t.Context(), "locker/signals/", clientv3.WithPrefix())
	require.NoError(t, err)
	require.Empty(t, res.Kvs)

	hears := signaller(t, newClient(t, s))
	l, other := signaltest.Listen(t, hears, signaltest.LockerID), signaltest.Listen(t, hears, strings.Replace(signaltest.LockerID, "0", "1", 1))
	for _, value := range []string{"", " ", "r", "r x", "rr x k"} {
		_, err := admin.Put(t.Context(), signalsKey, value, clientv3.WithIgnoreLease())
		require.NoError(t, err)
	}
	kinds := []driver.SignalKind{driver.SignalRequest, driver.SignalBroken, 'x'}
	for _, sent.Kind = range kinds {
		require.NoError(t, sender.Signal(t.Context(), sent))
	}
	for _, sent.Kind = range kinds {
		require.Equal(t, sent, signaltest.Heard(t, l))
	}
	sent.Key = strings.Repeat("k", locker.MaxKeyLen)
	require.NoError(t, sender.Signal(t.Context(), sent))
	require.Equal(t, sent, signaltest.Heard(t, l))
	require.Empty(t, other.C())
	require.ErrorIs(t, sender.Signal(t.Context(), driver.Signal{Claim: "an owner"}), driver.ErrInvalid)
	l.Close()
	other.Close()
	require.Eventually(t, func() bool {
		res, err := admin.Get(t.Context(), "locker/signals/", clientv3.WithPrefix())
		return err == nil && len(res.Kvs) == 0
	}, 5*time.Second, 10*time.Millisecond, "the keys of those that listen no more stay")
}

// The Locker learns that it hears no more, and may listen again. A process that has died leaves a key that ends.
func TestListenerEnds(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	admin, d := newClient(t, s), signaller(t, newClient(t, s))
	for what, end := range map[string]func(lease clientv3.LeaseID) error{
		"the key was deleted": func(clientv3.LeaseID) error {
			_, err := admin.Delete(t.Context(), signalsKey)
			return err
		},
		"the process was paused for longer than its lease": func(id clientv3.LeaseID) error {
			_, err := admin.Revoke(t.Context(), id)
			return err
		},
	} {
		l := signaltest.Listen(t, d, signaltest.LockerID)
		res, err := admin.Get(t.Context(), signalsKey)
		require.NoError(t, err)
		require.Len(t, res.Kvs, 1)
		left, err := admin.TimeToLive(t.Context(), clientv3.LeaseID(res.Kvs[0].Lease))
		require.NoError(t, err)
		require.LessOrEqual(t, left.TTL, int64(10), "the key ends with its process")
		require.NoError(t, end(clientv3.LeaseID(res.Kvs[0].Lease)), what)
		for range l.C() {
		}
		l.Close()
		l = signaltest.Listen(t, d, signaltest.LockerID)
		sent := driver.Signal{Kind: driver.SignalRequest, Key: "k", Claim: signaltest.LockerID + ":1"}
		require.NoError(t, d.Signal(t.Context(), sent))
		require.Equal(t, sent, signaltest.Heard(t, l), what)
		l.Close()
	}
}

// A Locker that listens for longer than the lease of its key goes on hearing.
func TestListenerLasts(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	admin, d := newClient(t, s), signaller(t, newClient(t, s))
	l := signaltest.Listen(t, d, signaltest.LockerID)
	defer l.Close()
	res, err := admin.Get(t.Context(), signalsKey)
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		left, err := admin.TimeToLive(t.Context(), clientv3.LeaseID(res.Kvs[0].Lease))
		require.NoError(t, err)
		return left.TTL < 8
	}, 15*time.Second, 50*time.Millisecond)
	require.Eventually(t, func() bool {
		left, err := admin.TimeToLive(t.Context(), clientv3.LeaseID(res.Kvs[0].Lease))
		require.NoError(t, err)
		return left.TTL > 8
	}, 15*time.Second, 50*time.Millisecond, "the lease is extended")
}

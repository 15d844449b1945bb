package redlock

import (
	"testing"
	"time"

	"github.com/distlock/locker/driver"
	"github.com/stretchr/testify/require"
)

const lockerID = "0194f2a4-58c1-8d7e-9b1a-5f3c2e1d0a9b"

// Signals go to all nodes and are heard at a majority: a node less on either side loses none.
func TestSignalsReachTheirLockerWithoutANode(t *testing.T) {
	t.Parallel()
	m := startMasters(t, 3)
	_, d := m.open(t)
	_, sender := m.open(t)
	m.proxies[0].Refuse(true)
	l, err := d.Listen(t.Context(), lockerID)
	require.NoError(t, err)
	defer l.Close()
	m.proxies[0].Refuse(false)
	m.kill(1)
	s := driver.Signal{Kind: driver.SignalRequest, Key: "a key", Claim: lockerID + ":7"}
	eventually(t, "the node that was down is subscribed to", func() bool {
		n, err := m.direct[0].PubSubNumSub(t.Context(), "locker:claims:{"+lockerID+"}").Result()
		return err == nil && n["locker:claims:{"+lockerID+"}"] == 1
	})
	require.NoError(t, sender.Signal(t.Context(), s))
	select {
	case got := <-l.C():
		require.Equal(t, s, got)
	case <-time.After(10 * time.Second):
		t.Fatal("no signal came")
	}
	m.kill(2)
	require.Error(t, sender.Signal(t.Context(), s), "a minority may be one that nobody hears")
}

// One command to each node finds the holder and asks it, as long as a majority answers.
func TestRequestInOneRoundTrip(t *testing.T) {
	t.Parallel()
	m := startMasters(t, 3)
	l, _ := m.open(t)
	_, other := m.open(t)
	lease, err := l.Lock(t.Context(), "k")
	require.NoError(t, err)
	requested := lease.ReleaseRequested()
	m.kill(2)
	h, asked, err := other.Ask(t.Context(), "k")
	require.NoError(t, err)
	require.True(t, asked)
	require.Equal(t, lease.Owner(), h.Owner)
	select {
	case <-requested:
	case <-time.After(10 * time.Second):
		t.Fatal("no request came")
	}
	require.NoError(t, lease.Unlock(t.Context()))
	h, asked, err = other.Ask(t.Context(), "k")
	require.NoError(t, err)
	require.False(t, h.Held || asked, "nobody has it")
}

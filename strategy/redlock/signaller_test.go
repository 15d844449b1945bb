package redlock

import (
	"fmt"
	"testing"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/conformance/faultproxy"
	"github.com/distlock/locker/driver"
	"github.com/distlock/locker/internal/redisdriver"
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

// A majority of the nodes that have broken their part is one SignalBroken. A node counts once, and a part of another claim does not.
func TestPartsOfABreakAreCounted(t *testing.T) {
	t.Parallel()
	m := startMasters(t, 3)
	_, d := m.open(t)
	l, err := d.Listen(t.Context(), lockerID)
	require.NoError(t, err)
	defer l.Close()
	channel := "locker:claims:{" + lockerID + "}"
	eventually(t, "all nodes are subscribed to", func() bool {
		for _, rdb := range m.direct {
			if n, err := rdb.PubSubNumSub(t.Context(), channel).Result(); err != nil || n[channel] == 0 {
				return false
			}
		}
		return true
	})
	send := func(node int, kind driver.SignalKind, claim string) driver.Signal {
		s := driver.Signal{Kind: kind, Key: "a key", Claim: lockerID + claim}
		require.NoError(t, m.direct[node].Publish(t.Context(), channel, s.String()).Err())
		return s
	}
	next := func() driver.Signal {
		select {
		case s := <-l.C():
			return s
		case <-time.After(10 * time.Second):
			t.Fatal("no signal came")
			return driver.Signal{}
		}
	}
	marks := 0
	silent := func(node int) { // what the node sent before has been heard
		t.Helper()
		marks++
		require.Equal(t, send(node, driver.SignalRequest, fmt.Sprint(":9", marks)), next())
	}
	const part = redisdriver.SignalPart
	send(0, part, ":7")
	send(0, part, ":7")
	silent(0)
	send(1, part, ":8")
	silent(1)
	send(1, part, ":7")
	require.Equal(t, driver.Signal{Kind: driver.SignalBroken, Key: "a key", Claim: lockerID + ":7"}, next())
	send(2, part, ":7")
	silent(2)
	for i := range 10 * driver.SignalBuffer {
		send(0, part, fmt.Sprint(":", 100+i))
	}
	silent(0)
	ls, ok := l.(*listener)
	require.True(t, ok)
	ls.mu.Lock()
	defer ls.mu.Unlock()
	require.LessOrEqual(t, len(ls.broken), driver.SignalBuffer, "forged parts fill no memory")
}

// The nodes' own messages are enough for a loss: two round trips after ForceUnlock. The signals that the Locker sends
// after them are held up.
func TestLossInTwoRoundTrips(t *testing.T) {
	t.Parallel()
	m := startMasters(t, 3)
	l, _ := m.open(t)
	lease, err := l.Lock(t.Context(), "k")
	require.NoError(t, err)
	lease.ReleaseRequested()
	sender, d := m.open(t)
	h, err := d.Inspect(t.Context(), "k")
	require.NoError(t, err)
	var late []*faultproxy.Rule
	for _, p := range m.proxies {
		late = append(late, p.Delay(faultproxy.MatchCommand("publish"), 0, time.Minute))
	}
	operator, ok := locker.ClientOf(sender)
	require.True(t, ok)
	done := make(chan error, 1)
	go func() { done <- operator.ForceUnlock(t.Context(), h) }()
	select {
	case <-lease.Lost():
	case <-time.After(8 * time.Second): // the next renewal comes after 10 s
		t.Fatal("the holder does not know of its loss")
	}
	for _, r := range late {
		r.Stop()
	}
	require.NoError(t, <-done)
	require.ErrorIs(t, lease.Unlock(t.Context()), locker.ErrLost)
	m.free(t, 10*time.Second, 0, "k")
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

package redlock

import (
	"testing"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/conformance/faultproxy"
	"github.com/stretchr/testify/require"
)

// Two renewals of one lock overlap, and between them all nodes lose their data: another holder may have come and gone. The majority
// of the first renewal does not bring the lock back while the second one asks.
func TestParallelRenewalsBringNothingBack(t *testing.T) {
	t.Parallel()
	m := startMasters(t, 3)
	l, d := m.open(t, locker.WithTTL(time.Hour)) // no renewal comes by itself
	lease := lock(t, l, "k")
	m.placed(t, d, lease)
	require.NoError(t, lease.Renew(t.Context())) // the script becomes known
	m.placed(t, d, lease)
	before := m.proxies[0].Count(isOp("renew"))
	h := d.holds.get(lease.Owner())
	// knows waits until the answer of the first node to renewal n is known.
	knows := func(n int, placed bool) {
		eventually(t, "the first node has answered", func() bool {
			h.mu.Lock()
			defer h.mu.Unlock()
			return m.proxies[0].Count(isOp("renew")) == before+n && !h.nodes[0].busy && h.nodes[0].placed == placed
		})
	}
	renew := func() <-chan error {
		ended := make(chan error, 1)
		go func() { ended <- lease.Renew(t.Context()) }()
		return ended
	}
	var replies []*faultproxy.Rule
	for i := 1; i < 3; i++ {
		replies = append(replies, m.proxies[i].DelayReply(isOp("renew"), 1, time.Minute))
	}
	first := renew()
	for _, r := range replies {
		require.NoError(t, r.Wait(t.Context(), 1), "the node has renewed the lock")
	}
	knows(1, true)
	for i := range 3 {
		require.NoError(t, m.direct[i].FlushAll(t.Context()).Err())
	}
	late := m.proxies[1].Delay(isOp("renew"), 1, time.Minute)
	second := renew()
	knows(2, false)
	replies[0].Stop()
	require.NoError(t, <-first, "a majority has renewed the lock, before it was lost")
	require.NoError(t, late.Wait(t.Context(), 1), "the second one asks the second node")
	time.Sleep(20 * firstPause) // the pause before a lock is taken to a node is the first one, many times over
	for i := range 3 {
		require.Empty(t, m.holder(t, i, "k"), "another holder may have come and gone")
	}
	late.Stop()
	require.ErrorIs(t, <-second, locker.ErrLost)
	replies[1].Stop()
}

package redisdriver

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/distlock/locker/conformance/faultproxy"
	"github.com/distlock/locker/driver"
	"github.com/distlock/locker/internal/redisconn"
	"github.com/distlock/locker/internal/test/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// A caller whose deadline passes costs no connection. A new connection takes round trips, and would make the next
// attempt late.
func TestLateCallersCostNoConnection(t *testing.T) {
	t.Parallel()
	const times = 10
	for _, beforeWait := range []bool{false, true} {
		name := "in its WAIT"
		if beforeWait {
			name = "before its WAIT"
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newProxied(t, false)
			acked(t, l.Driver, maxAckTimeout)
			connections := func() int {
				n, err := strconv.Atoi(l.direct.InfoMap(t.Context(), "stats").Item("Stats", "total_connections_received"))
				require.NoError(t, err)
				return n
			}
			before := connections()
			for range times {
				var late *faultproxy.Rule
				if beforeWait {
					late = l.proxy.DelayReply(faultproxy.MatchCommand("EVALSHA"), 1, time.Hour)
				}
				ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
				require.Error(t, l.acquire(ctx))
				cancel()
				if late != nil {
					late.Stop()
				}
				l.settled(t)
			}
			require.Less(t, connections()-before, times/2)
			waits := l.proxy.Count(faultproxy.MatchCommand("WAIT"))
			require.Equal(t, !beforeWait, waits > 0, "%d were sent", waits)
		})
	}
}

// waiting returns how many connections of a server are in a WAIT.
func waiting(t *testing.T, server *redis.Client) int {
	t.Helper()
	n, err := strconv.Atoi(server.InfoMap(t.Context(), "clients").Item("Clients", "blocked_clients"))
	require.NoError(t, err)
	return n
}

// endWaits ends each WAIT of a server.
func endWaits(t *testing.T, server *redis.Client) {
	t.Helper()
	for id := range server.ClientID(t.Context()).Val() + 2*redisconn.ReplicaPool {
		_ = server.ClientUnblock(t.Context(), id)
	}
}

// attempt makes one attempt at a key.
func attempt(ctx context.Context, d *Driver, key string) error {
	_, err := d.Acquire(ctx, driver.Request{Claim: claimOf(key)})
	return err
}

// begun begins an attempt in each slot, at keys with a prefix. The attempts end with ctx.
func begun(ctx context.Context, d *Driver, prefix string) *sync.WaitGroup {
	var all sync.WaitGroup
	for i := range redisconn.ReplicaPool {
		all.Go(func() { _ = attempt(ctx, d, prefix+strconv.Itoa(i)) })
	}
	return &all
}

// A claim whose caller leaves in its WAIT is released at once. The WAIT keeps its slot: an attempt without a
// connection is not sent.
func TestCallersLeaveInTheirWait(t *testing.T) {
	t.Parallel()
	l := newProxied(t, false)
	l.acks = replicaAcks{n: 1, timeout: time.Hour}.on(l.conn)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	left := begun(ctx, l.Driver, "left")
	require.Eventually(t, func() bool { return waiting(t, l.direct) == redisconn.ReplicaPool }, soon, time.Millisecond)
	cancel()
	left.Wait()
	l.settled(t)
	for i := range redisconn.ReplicaPool {
		require.NoError(t, l.Release(t.Context(), claimOf("left"+strconv.Itoa(i))))
	}
	require.Equal(t, redisconn.ReplicaPool, waiting(t, l.direct), "they go on")
	late, end := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer end()
	require.Error(t, attempt(late, l.Driver, "late"))
	endWaits(t, l.direct)
	l.settled(t)
	require.Zero(t, waiting(t, l.direct))
	require.Zero(t, l.direct.Exists(t.Context(), "late").Val())
}

// A WAIT whose answer never comes gives its slot back after the timeout and the time that a command may take.
func TestSilentWaitsGiveTheirSlotsBack(t *testing.T) {
	t.Parallel()
	const timeout = 100 * time.Millisecond
	l := newProxied(t, false)
	acked(t, l.Driver, timeout)
	silent := l.proxy.HangReply(faultproxy.MatchCommand("WAIT"), redisconn.ReplicaPool)
	defer silent.Stop()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	began := time.Now()
	left := begun(ctx, l.Driver, "left")
	require.NoError(t, silent.Wait(t.Context(), redisconn.ReplicaPool))
	cancel()
	left.Wait()
	err := attempt(t.Context(), l.Driver, "later")
	require.ErrorContains(t, err, "0 of the 1 replicas", "it is sent when a slot is free")
	took := time.Since(began)
	require.GreaterOrEqual(t, took, timeout+commandTimeout)
	require.Less(t, took, timeout+soon)
}

// An attempt that a cluster redirects (ASK) keeps its slot until its WAIT on the other node is answered.
func TestRedirectedWaitsKeepTheirSlots(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 2, 1)
	d, err := NewDriver(c.Client(t), toy)
	require.NoError(t, err)
	defer d.Close()
	d.acks = replicaAcks{n: 1, timeout: time.Hour}.on(d.conn)
	c.StopReplication(t, 1)
	target, tag := c.Master(t, 1).Client(t), 0
	for c.ShardOf(t, fmt.Sprintf("{%d}", tag)) != 0 {
		tag++
	}
	c.StartMove(t, redisconn.Slot(fmt.Sprintf("{%d}", tag)), 1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	left := begun(ctx, d, fmt.Sprintf("{%d}left", tag))
	require.Eventually(t, func() bool { return waiting(t, target) == redisconn.ReplicaPool }, soon, time.Millisecond)
	cancel()
	left.Wait()
	late, end := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer end()
	key := fmt.Sprintf("{%d}late", tag)
	require.Error(t, attempt(late, d, key))
	endWaits(t, target)
	require.NoError(t, d.conn.AwaitAbandoned(t.Context(), func(*redisconn.Command) bool { return true }))
	set := func() bool {
		pipe := target.Pipeline()
		pipe.Do(t.Context(), "asking")
		n := pipe.Exists(t.Context(), key)
		_, err := pipe.Exec(t.Context())
		require.NoError(t, err)
		return n.Val() == 1
	}
	require.False(t, set(), "it is not sent")
	later, end := context.WithCancel(t.Context())
	defer end()
	go func() { _ = attempt(later, d, key) }()
	require.Eventually(t, set, soon, 10*time.Millisecond, "it is sent when a slot is free")
}

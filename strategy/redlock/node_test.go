package redlock

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/conformance/faultproxy"
	"github.com/distlock/locker/driver"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

func TestBlackHoledNodeIsSkippedAndComesBack(t *testing.T) {
	t.Parallel()
	m := startMasters(t, 5)
	l, d := m.open(t, rejoin, WithNodeTimeout(5*time.Second))
	unlock(t, lock(t, l, "k"))
	hole, n := m.proxies[4], d.nodes[4]

	hole.Blackhole(true)
	// Commands that are sent now may arrive when the hole ends, and stay for the TTL.
	lease := lock(t, l, "k", locker.WithTTL(8*time.Second))
	eventually(t, "a node that does not answer is down", n.isDown)
	unlock(t, lease)
	hole.ResetCounts()
	for range 50 {
		unlock(t, lock(t, l, "k"))
	}
	require.Zero(t, hole.Count(isAnyOp), "a node that is down is not sent anything, so that it costs its timeout once")
	// Taken without it.
	lease = lock(t, l, "k")
	hole.Blackhole(false)
	m.holds(t, 4, lease)
	require.GreaterOrEqual(t, m.fence(t, 4, "k"), lease.Token(), "a node that comes back learns of the token with the lock")
	require.False(t, n.isDown(), "a node that answers is up")
	unlock(t, lease)
	m.free(t, 10*time.Second, 4, "k")
}

// A node whose connections are refused, not swallowed, is skipped as well.
func TestDeadNodeIsSkipped(t *testing.T) {
	t.Parallel()
	m := startMasters(t, 3)
	l, d := m.open(t)
	m.kill(0)
	lease := lock(t, l, "k")
	eventually(t, "a node that refuses connections is down", d.nodes[0].isDown)
	unlock(t, lease)
	m.proxies[0].ResetCounts()
	for range 20 {
		unlock(t, lock(t, l, "k"))
	}
	require.Zero(t, m.proxies[0].Count(isAnyOp))
}

// endProbes returns when no probe is under way, and lets none begin.
func endProbes(t *testing.T, n *node) {
	t.Helper()
	eventually(t, "no probe is under way, and none begins", func() bool {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.nextProbe = time.Now().Add(time.Hour)
		return n.probed == nil
	})
}

// A failure that is older than the node's last answer does not keep the node from the next command.
func TestOldFailuresSkipNoNode(t *testing.T) {
	t.Parallel()
	m := startMasters(t, 3)
	_, d := m.open(t)
	n := d.nodes[0]
	endProbes(t, n)
	failing := func() answer { return answer{state: failed, err: io.EOF} }
	n.call(t.Context(), opRelease, func() answer {
		n.call(t.Context(), opAcquire, func() answer { return answer{state: yes} })
		return failing()
	})
	require.False(t, n.isDown(), "a later command was answered")
	n.call(t.Context(), opRelease, failing)
	require.True(t, n.isDown(), "no command was answered since")
}

// A renewal asks a node that is down if it needs its vote: the other nodes that are up do not have the claim.
func TestRenewalAsksANodeThatItNeeds(t *testing.T) {
	t.Parallel()
	m := startMasters(t, 5)
	l, d := m.open(t)
	unlock(t, lock(t, l, "k")) // all nodes are known
	n := d.nodes[2]
	endProbes(t, n)
	n.mu.Lock()
	n.skip(io.EOF)
	n.mu.Unlock()
	for taken, skipped := range map[int]bool{3: false, 4: true} {
		h := d.newHold(driver.Request{Claim: driver.Claim{Key: "renewed", ID: d.newID(), TTL: time.Minute}})
		for i := range taken {
			h.nodes[i].touched = true
		}
		for _, kind := range []opKind{opConfirm, opRenew} {
			require.Equal(t, skipped, errors.Is(h.do(t.Context(), 2, kind).err, errSkipped), "%d nodes may have the claim, one of them is down", taken)
			h.nodes[2].touched = true // it has answered that it has not
		}
	}
}

func TestRestartedEmptyNodeIsRejoined(t *testing.T) {
	t.Parallel()
	m := startMasters(t, 3)
	l := m.locker(t, locker.WithRenewInterval(200*time.Millisecond))
	lease := lock(t, l, "k")
	m.servers[0].Restart(t) // without its data
	m.holds(t, 0, lease)
	require.GreaterOrEqual(t, m.fence(t, 0, "k"), lease.Token())
	// Now it counts again: another may go.
	m.kill(1)
	require.NoError(t, lease.Renew(t.Context()), "the two that are left are a majority")
	unlock(t, lease)
}

func TestJoinSparesAnotherHolder(t *testing.T) {
	t.Parallel()
	m := startMasters(t, 3)
	l := m.locker(t)
	lease := lock(t, l, "k", locker.WithoutRenewal())
	for i := range m.servers {
		m.holds(t, i, lease)
	}
	require.NoError(t, m.direct[0].Set(t.Context(), "k", "somebody else", time.Minute).Err())
	for range 3 {
		require.NoError(t, lease.Renew(t.Context()))
	}
	require.Equal(t, "somebody else", m.holder(t, 0, "k"))
	unlock(t, lease)
	require.Equal(t, "somebody else", m.holder(t, 0, "k"))
}

// Commands that wait for a connection say nothing about the node.
func TestSmallPoolsAreNoDeadNodes(t *testing.T) {
	t.Parallel()
	m := startMasters(t, 3)
	var rdbs []redis.UniversalClient
	for _, p := range m.proxies {
		rdb := redis.NewClient(&redis.Options{Addr: p.Addr(), PoolSize: 1})
		t.Cleanup(func() { _ = rdb.Close() })
		rdbs = append(rdbs, rdb)
	}
	l, err := New(rdbs)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.Close()) })
	var wg sync.WaitGroup
	for i := range 100 {
		wg.Go(func() {
			for range 3 {
				lease, err := l.Lock(t.Context(), fmt.Sprint(i), locker.WithTTL(20*time.Second))
				if err == nil {
					err = lease.Unlock(t.Context())
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}

func TestErrorsNameTheNodes(t *testing.T) {
	t.Parallel()
	m := startMasters(t, 5)
	l := m.locker(t, locker.WithTTL(time.Second))
	lease := lock(t, l, "held", locker.WithTTL(time.Minute), locker.WithoutRenewal())
	for i := range 3 {
		m.kill(i)
	}
	_, err := l.TryLock(t.Context(), "k")
	require.ErrorIs(t, err, locker.ErrUnavailable)
	renew := lease.Renew(t.Context())
	require.ErrorIs(t, renew, locker.ErrUnavailable)
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	release := lease.Unlock(ctx)
	require.ErrorIs(t, release, locker.ErrUnavailable)
	for i, p := range m.proxies {
		for _, err := range []error{err, renew} {
			if i < 3 {
				require.ErrorContains(t, err, "node "+p.Addr(), "the error names the nodes that fail")
			} else {
				require.NotContains(t, err.Error(), p.Addr(), "the error spares the nodes that do not")
			}
		}
	}
	require.ErrorContains(t, err, "2 of 5 nodes")
	require.NotErrorIs(t, err, context.DeadlineExceeded, "the caller's context is alive")
}

func TestOneNodesPermissionsAreNoOutage(t *testing.T) {
	t.Parallel()
	m := startMasters(t, 3)
	rdbs := m.clients(t)
	require.NoError(t, m.direct[0].ConfigSet(t.Context(), "requirepass", "secret").Err())
	l, err := New(rdbs)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.Close()) })
	unlock(t, lock(t, l, "k"))

	require.NoError(t, m.direct[1].ConfigSet(t.Context(), "requirepass", "secret").Err())
	other, err := New(m.clients(t))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, other.Close()) })
	start := time.Now()
	_, err = other.Lock(t.Context(), "k")
	require.ErrorIs(t, err, locker.ErrUnavailable)
	require.ErrorContains(t, err, "NOAUTH", "two nodes of three that want a password leave no majority: tell at once")
	require.Less(t, time.Since(start), 10*time.Second)
}

func TestRefusesBadNodes(t *testing.T) {
	t.Parallel()
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	t.Cleanup(func() { _ = client.Close() })
	for _, n := range []int{0, 1, 2, 4, 6} {
		rdbs := make([]redis.UniversalClient, n)
		for i := range rdbs {
			rdbs[i] = client
		}
		_, err := New(rdbs)
		require.ErrorIs(t, err, locker.ErrInvalid, "%d nodes", n)
	}
	for _, none := range []redis.UniversalClient{nil, (*redis.Client)(nil)} {
		_, err := New([]redis.UniversalClient{client, none, client})
		require.ErrorIs(t, err, locker.ErrInvalid)
		require.ErrorContains(t, err, "#2")
	}
	for _, o := range []locker.Option{WithNodeTimeout(0), WithNodeTimeout(-1), locker.WithDriverOption("unknown")} {
		_, err := New([]redis.UniversalClient{client, client, client}, o)
		require.ErrorIs(t, err, locker.ErrInvalid)
	}
}

func TestSameServerTwiceIsRefused(t *testing.T) {
	t.Parallel()
	m := startMasters(t, 3)
	same := faultproxy.Start(t, m.servers[0].Addr()) // a second way to it
	right := m.proxies[2]
	m.proxies[2] = same
	l := m.locker(t)
	eventually(t, "all nodes have said who they are", func() bool {
		_, err := l.TryLock(t.Context(), fmt.Sprint(time.Now()))
		return errors.Is(err, locker.ErrInvalid)
	})
	for range 2 {
		_, err := l.Lock(t.Context(), "k")
		require.ErrorIs(t, err, locker.ErrInvalid, "a majority of two would be one server")
		require.ErrorContains(t, err, same.Addr())
		require.ErrorContains(t, err, m.proxies[0].Addr())
	}
	for i := range 2 {
		m.free(t, 10*time.Second, i, "k")
	}
	m.proxies[2] = right
	unlock(t, lock(t, m.locker(t), "k"))
}

func TestIsAway(t *testing.T) {
	t.Parallel()
	m := startMasters(t, 1)
	rdb := m.clients(t)[0]
	ctx, cancel := context.WithTimeout(t.Context(), time.Nanosecond)
	defer cancel()
	require.True(t, isAway(rdb.Ping(ctx).Err()), "out of time")
	require.True(t, isAway(fmt.Errorf("read: %w", io.EOF)))
	require.True(t, isAway(redis.ErrPoolTimeout))
	require.False(t, isAway(rdb.Do(t.Context(), "NOSUCHCOMMAND").Err()), "a server that complains is there")
	require.False(t, isAway(nil))
	require.False(t, isAway(context.Canceled))
	m.kill(0)
	err := rdb.Ping(t.Context()).Err()
	require.True(t, isAway(err), "closed: %v", err)
	err = redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"}).Ping(t.Context()).Err()
	require.True(t, isAway(err), "refused: %v", err)
}

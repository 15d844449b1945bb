package redlock

import (
	"context"
	"testing"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/conformance/faultproxy"
	"github.com/distlock/locker/internal/redisdriver"
	"github.com/stretchr/testify/require"
)

// A TTL that nobody waits for.
const long = time.Minute

// rejoin takes a lock to the nodes that were too slow to grant it, within moments.
var rejoin = locker.WithRenewInterval(200 * time.Millisecond)

func TestFailedAttemptLeavesNoKeys(t *testing.T) {
	t.Parallel()
	m := startMasters(t, 5)
	l := m.locker(t, locker.WithTTL(long))
	for i := range 3 {
		m.kill(i)
	}
	for range 5 {
		_, err := l.TryLock(t.Context(), "k")
		require.ErrorIs(t, err, locker.ErrUnavailable)
		for i := 3; i < 5; i++ {
			require.Empty(t, m.holder(t, i, "k"), "what a minority granted is gone when TryLock returns")
		}
	}
}

func TestCancelledAttemptLeavesNoKeys(t *testing.T) {
	t.Parallel()
	m := startMasters(t, 5)
	l := m.locker(t, locker.WithTTL(long), WithNodeTimeout(10*time.Second))
	// Three answer so late that the caller has gone.
	var rules []*faultproxy.Rule
	for i := range 3 {
		rules = append(rules, m.proxies[i].Delay(isOp("acquire"), 0, 500*time.Millisecond))
	}
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error, 1)
	go func() {
		_, err := l.Lock(ctx, "k")
		failed <- err
	}()
	for _, r := range rules {
		eventually(t, "the attempt is on its way to the node", func() bool { return r.Fired() > 0 })
	}
	for i := 3; i < 5; i++ {
		eventually(t, "the others have granted it", func() bool { return m.holder(t, i, "k") != "" })
	}
	cancel()
	require.ErrorIs(t, <-failed, context.Canceled)
	for i := range 5 {
		eventually(t, "the attempt has reached the node", func() bool { return m.fence(t, i, "k") > 0 })
		m.free(t, 10*time.Second, i, "k")
	}
}

// A command that a node did not answer in time may reach it after the release that
// cleans up.
func TestStragglerDoesNotOutliveTheCleanUp(t *testing.T) {
	t.Parallel()
	m, k := startMasters(t, 5), keyAskedAt(4, 5)
	l, d := m.open(t, locker.WithTTL(long), WithNodeTimeout(500*time.Millisecond))
	unlock(t, lock(t, l, "warm-up")) // the scripts become known
	for i := range 3 {
		require.NoError(t, m.direct[i].Set(t.Context(), k, "somebody else", 0).Err())
	}
	eventually(t, "the node is asked", func() bool { return d.skip(d.nodes[4], opAcquire) == nil }) // on a slow machine it may not be
	late := m.proxies[4].Delay(isOp("acquire"), 1, 2*time.Second)
	_, err := l.TryLock(t.Context(), k)
	require.ErrorIs(t, err, locker.ErrNotAcquired)
	eventually(t, "the attempt is on its way to the node", func() bool { return late.Fired() > 0 })
	eventually(t, "the late command reaches the node", func() bool { return m.fence(t, 4, k) > 0 })
	m.free(t, 10*time.Second, 4, k)
	m.free(t, 10*time.Second, 3, k)
}

// Likewise of an attempt that succeeded without that node.
func TestStragglerDoesNotOutliveTheRelease(t *testing.T) {
	t.Parallel()
	m, k := startMasters(t, 5), keyAskedAt(4, 5)
	l, d := m.open(t, locker.WithTTL(long), WithNodeTimeout(500*time.Millisecond))
	unlock(t, lock(t, l, "warm-up"))
	eventually(t, "the node is asked", func() bool { return d.skip(d.nodes[4], opAcquire) == nil }) // on a slow machine it may not be
	late := m.proxies[4].Delay(isOp("acquire"), 1, 2*time.Second)
	lease := lock(t, l, k)
	eventually(t, "the attempt is on its way to the node", func() bool { return late.Fired() > 0 })
	unlock(t, lease)
	eventually(t, "the late command or the release reaches the node", func() bool { return m.fence(t, 4, k) > 0 })
	// The counter may be the release's word; the command arrives within two seconds.
	within(t, 20*time.Second, "the release is repeated until it finds the key", func() bool {
		return m.proxies[4].Count(isOp("release")) >= 3
	})
	m.free(t, 10*time.Second, 4, k)
}

func TestReleaseReachesANodeThatWasAway(t *testing.T) {
	t.Parallel()
	m := startMasters(t, 5)
	l, d := m.open(t, locker.WithTTL(long), WithNodeTimeout(500*time.Millisecond), rejoin)
	lease := lock(t, l, "k")
	for i := range 5 {
		m.holds(t, i, lease)
	}
	m.proxies[2].Blackhole(true)
	unlock(t, lease)
	for _, i := range []int{0, 1, 3, 4} {
		m.free(t, 10*time.Second, i, "k")
	}
	require.NotEmpty(t, m.holder(t, 2, "k"))
	eventually(t, "the release has failed", d.nodes[2].isDown)
	m.proxies[2].Blackhole(false)
	m.free(t, 10*time.Second, 2, "k")
}

// With three nodes, two that missed the release of a holder each would leave but one
// free.
func TestMissedReleasesLockNobodyOut(t *testing.T) {
	t.Parallel()
	m := startMasters(t, 3)
	l := m.locker(t, locker.WithTTL(long), WithNodeTimeout(200*time.Millisecond), rejoin)
	for _, away := range []int{1, 2} {
		lease := lock(t, l, "k")
		m.holds(t, away, lease)
		m.proxies[away].Blackhole(true)
		unlock(t, lease)
		m.proxies[away].Blackhole(false)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	lease, err := m.locker(t).Lock(ctx, "k")
	require.NoError(t, err, "the nodes that missed a release are told again")
	unlock(t, lease)
}

// A lease that is lost leaves nothing on the minority that still has it.
func TestLossCleansUp(t *testing.T) {
	t.Parallel()
	m := startMasters(t, 5)
	l := m.locker(t, locker.WithTTL(long)) // a renewal in between would take the lock to the first node again
	lease := lock(t, l, "k")
	for i := range 5 {
		m.holds(t, i, lease)
	}
	for i := range 3 {
		require.NoError(t, m.direct[i].FlushAll(t.Context()).Err())
	}
	require.ErrorIs(t, lease.Renew(t.Context()), locker.ErrLost, "three nodes of five have lost the key")
	<-lease.Lost()
	m.free(t, 10*time.Second, 3, "k")
	m.free(t, 10*time.Second, 4, "k")
	require.ErrorIs(t, lease.Unlock(t.Context()), locker.ErrLost)
}

func TestQuorumIsNeededToStay(t *testing.T) {
	t.Parallel()
	const (
		ttl   = 5 * time.Second // longer than a busy machine stops
		every = 200 * time.Millisecond
	)
	m := startMasters(t, 5)
	l := m.locker(t, locker.WithTTL(ttl), locker.WithRenewInterval(every))
	lease := lock(t, l, "k")
	m.kill(0)
	m.kill(1)
	first := lease.Deadline()
	within(t, 20*time.Second, "three nodes of five renew it", func() bool {
		require.NoError(t, lease.Err(), "the lease is lost with three nodes of five")
		return lease.Deadline().Sub(first) > 3*every // one was under way
	})

	m.kill(2)
	killed := time.Now()
	ctx := lease.Context(t.Context())
	select {
	case <-lease.Lost():
	case <-time.After(ttl + 10*time.Second):
		t.Fatal("the lease is not lost with two nodes of five")
	}
	require.ErrorIs(t, ctx.Err(), locker.ErrLost)
	// A renewal may have been on its way.
	require.Less(t, lease.Deadline().Sub(killed), ttl+200*time.Millisecond, "no renewal succeeds on two nodes of five")
	require.ErrorIs(t, lease.Unlock(t.Context()), locker.ErrLost)
	m.free(t, 10*time.Second, 3, "k")
	m.free(t, 10*time.Second, 4, "k")
}

func TestReleaseLeavesTheFencingKeyOnly(t *testing.T) {
	t.Parallel()
	m := startMasters(t, 3)
	unlock(t, lock(t, m.locker(t), "fenced"))
	unlock(t, lock(t, m.locker(t, locker.WithoutFencing()), "plain"))
	for i := range 3 {
		m.free(t, 10*time.Second, i, "fenced")
		m.free(t, 10*time.Second, i, "plain")
		keys, err := m.direct[i].Keys(t.Context(), "*").Result()
		require.NoError(t, err)
		require.Subset(t, []string{redisdriver.FenceKey("fenced")}, keys)
	}
}

// The last node of a bare majority answers when the key has expired there: its "not
// yours" does not say that the lock was lost before it was released.
func TestUnlockInTimeOnASlowNodeIsNoLoss(t *testing.T) {
	t.Parallel()
	const ttl = 2 * time.Second // longer than most stops of a busy machine
	m := startMasters(t, 5)
	l := m.locker(t, locker.WithTTL(ttl), WithNodeTimeout(3*ttl))
	unlock(t, lock(t, l, "warm-up")) // the scripts become known
	for i := 3; i < 5; i++ {
		require.NoError(t, m.direct[i].Set(t.Context(), "k", "somebody else", 0).Err())
	}
	lease := lock(t, l, "k")
	m.proxies[2].Delay(isOp("release"), 0, ttl+ttl/2) // when it is sent again, too
	require.NoError(t, lease.Unlock(t.Context()), "Unlock, called long before the deadline %v", lease.Deadline())
}

// The release that the hold sends by itself frees the nodes, and its replies are lost: Unlock,
// whose release finds nothing, reports no loss.
func TestUnlockBehindAnUnansweredReleaseIsNoLoss(t *testing.T) {
	t.Parallel()
	m := startMasters(t, 3)
	l, d := m.open(t, locker.WithTTL(long))
	lease := lock(t, l, "k")
	for i := range 3 {
		m.holds(t, i, lease)
	}
	d.holds.mu.Lock()
	require.Len(t, d.holds.byID, 1)
	var h *hold
	for _, h = range d.holds.byID {
	}
	d.holds.mu.Unlock()
	h.close()
	for i := range 2 {
		m.proxies[i].ResetAfter(isOp("release"), 1)
		require.Equal(t, failed, h.do(t.Context(), i, opRelease).state)
		m.free(t, 10*time.Second, i, "k")
	}
	require.NoError(t, lease.Unlock(t.Context()))
	m.free(t, 10*time.Second, 2, "k")
}

// A server that has no memory left frees the lock.
func TestReleaseOnAFullNode(t *testing.T) {
	t.Parallel()
	m := startMasters(t, 5)
	lease := lock(t, m.locker(t), "k", locker.WithTTL(time.Hour))
	m.holds(t, 4, lease)
	require.NoError(t, m.direct[4].ConfigSet(t.Context(), "maxmemory", "1").Err())
	unlock(t, lease)
	for i := range m.servers {
		m.free(t, 20*time.Second, i, "k")
	}
}

// A lock that was unlocked is free, though its release is still on the way to one node and
// another goes away: the nodes that are free are no majority without the first.
func TestReleaseOnItsWayRefusesNothing(t *testing.T) {
	t.Parallel()
	m := startMasters(t, 3)
	l := m.locker(t)
	lease := lock(t, l, "k")
	for i := range 3 {
		m.holds(t, i, lease)
	}
	m.proxies[1].Delay(isOp("release"), 1, 200*time.Millisecond)
	unlock(t, lease)
	m.proxies[2].Refuse(true)
	again, err := l.TryLock(t.Context(), "k")
	require.NoError(t, err)
	unlock(t, again)
}

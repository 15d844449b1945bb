package redlock

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/conformance/faultproxy"
	"github.com/distlock/locker/strategy/setnx"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// A lock that may be on a majority, with the node that is silent, is shown as held.
func TestInspectWithASilentNode(t *testing.T) {
	t.Parallel()
	m := startMasters(t, 3)
	l, d := m.open(t, locker.WithTTL(long), locker.WithoutRenewal())
	lease := lock(t, l, "k")
	m.placed(t, d, lease)
	require.NoError(t, m.direct[1].Del(t.Context(), "k").Err()) // as if it had restarted empty
	m.kill(2)
	operator := m.locker(t).(*locker.Client)
	inspect := func() (h locker.Holder) {
		// On a busy machine a node that is well may be too late as well: then no majority answers.
		eventually(t, "a majority answers", func() (answered bool) {
			var err error
			h, err = operator.Inspect(t.Context(), "k")
			if err != nil {
				require.ErrorIs(t, err, locker.ErrUnavailable)
			}
			return err == nil
		})
		return h
	}
	h := inspect()
	require.True(t, h.Held)
	require.Equal(t, lease.Owner(), h.Owner)
	require.NoError(t, m.direct[0].Del(t.Context(), "k").Err())
	h = inspect()
	require.False(t, h.Held, "a majority says that it is free")
}

// A renewal between the first part of a break and the majority's brings the lock back to the nodes that have broken it. The
// break goes on until a majority does not have the lock.
func TestForceUnlockBesideARenewal(t *testing.T) {
	t.Parallel()
	m := startMasters(t, 3)
	l, d := m.open(t)
	lease := lock(t, l, "k")
	lease.ReleaseRequested() // the holder listens
	m.placed(t, d, lease)
	o, late := m.operator(t)
	operator := o.locker(t).(*locker.Client)
	h, err := operator.Inspect(t.Context(), "k")
	require.NoError(t, err)
	done := make(chan error, 1)
	go func() { done <- operator.ForceUnlock(t.Context(), h) }()
	m.bringBack(t, lease)
	late[0].Stop() // a majority has broken its part now
	require.NoError(t, <-done)
	select {
	case <-lease.Lost():
	case <-time.After(8 * time.Second): // the next renewal comes after 10 s
		t.Error("the holder goes on after ForceUnlock has returned")
	}
	late[1].Stop()
	for i := range m.servers {
		m.free(t, 10*time.Second, i, "k")
	}
}

// A holder whose renewals undo each round of the break does not keep the operator for longer than the
// operator's context.
func TestBreakEndsWithItsContext(t *testing.T) {
	t.Parallel()
	m := startMasters(t, 3)
	l, d := m.open(t)
	lease := lock(t, l, "k")
	m.placed(t, d, lease)
	o, late := m.operator(t)
	_, od := o.open(t)
	h, err := od.Inspect(t.Context(), "k")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- od.Break(ctx, h) }()
	m.bringBack(t, lease)
	cancel()
	late[0].Stop() // the first round is over
	err = <-done
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorContains(t, err, "the holder's renewals bring the lock back")
	m.holds(t, 0, lease)
	late[1].Stop()
}

// operator returns the masters as an operator reaches them, through proxies that hold up its breaks at all nodes but
// the first, until the rules are stopped.
func (m *masters) operator(t *testing.T) (o *masters, late []*faultproxy.Rule) {
	t.Helper()
	o = &masters{servers: m.servers, direct: m.direct}
	for i, s := range m.servers {
		o.proxies = append(o.proxies, faultproxy.Start(t, s.Addr()))
		if i > 0 {
			late = append(late, o.proxies[i].Delay(isOp("break"), 1, time.Minute))
		}
	}
	return o, late
}

// bringBack waits until the first node has broken its part of the lock, and renews the lease, which takes the lock
// there again.
func (m *masters) bringBack(t *testing.T, lease *locker.Lease) {
	t.Helper()
	m.free(t, 10*time.Second, 0, lease.Key())
	require.NoError(t, lease.Renew(t.Context()))
	m.holds(t, 0, lease)
}

// A Locker on one of the nodes does not take a lock that is on others, too.
func TestOneNodeDoesNotBreakAQuorum(t *testing.T) {
	t.Parallel()
	m := startMasters(t, 3)
	lease := lock(t, m.locker(t), "k")
	for i := range m.servers {
		m.holds(t, i, lease)
	}
	l, err := setnx.New(redis.UniversalClient(m.direct[0]))
	require.NoError(t, err)
	defer l.Close()
	one := l
	h, err := one.Inspect(t.Context(), "k")
	require.NoError(t, err)
	require.Equal(t, "redlock", h.Strategy)
	require.ErrorIs(t, one.ForceUnlock(t.Context(), h), locker.ErrConflict)
	m.holds(t, 0, lease)
	unlock(t, lease)
}

// A node that refuses an operator's command takes locks as before: it is not in trouble.
func TestNodesThatRefuseAnOperatorAreWell(t *testing.T) {
	t.Parallel()
	m := startMasters(t, 3)
	var rdbs []redis.UniversalClient
	for _, s := range m.servers {
		s.AddUser(t, "locks", "secret", "~k", "~locker:fence:*", "&*", "+@all", "-scan") // as documented: no other key
		o := s.Options()
		o.Username, o.Password = "locks", "secret"
		rdb := redis.NewClient(o)
		t.Cleanup(func() { _ = rdb.Close() })
		rdbs = append(rdbs, rdb)
	}
	var w told
	l, err := New(rdbs, slices.Concat(w.options(), []locker.Option{WithNodeTimeout(20 * time.Second)})...)
	require.NoError(t, err)
	unlock(t, lock(t, l, "k"))
	admin := l
	_, err = admin.Inspect(t.Context(), "k")
	require.ErrorIs(t, err, locker.ErrUnavailable)
	require.ErrorContains(t, err, "0 of 3 nodes carried out the command")
	require.ErrorContains(t, err, "NOPERM")
	for _, err := range admin.Holders(t.Context(), "*") {
		require.ErrorIs(t, err, locker.ErrUnavailable)
	}
	require.NoError(t, l.Close()) // every event is delivered
	w.mu.Lock()
	defer w.mu.Unlock()
	require.Empty(t, w.events)
	require.Empty(t, w.lines.String())
}

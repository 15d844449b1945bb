package etcd_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/distlock/locker/driver"
	"github.com/distlock/locker/strategy/etcd"
)

func request(id string) driver.Request {
	return driver.Request{Claim: driver.Claim{Key: "k", ID: id, Owner: id, TTL: time.Minute}}
}

// A lease is kept for the next claim if this process has deleted its member, and not if another one has: that one
// may revoke it at any moment.
func TestWhoDeletedHasTheLease(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	admin, d := newClient(t, s), etcd.NewDriver(newClient(t, s))
	defer d.Close()
	for _, broken := range []bool{false, true} {
		req := request(map[bool]string{false: "released", true: "broken"}[broken])
		a, err := d.Acquire(t.Context(), req)
		require.NoError(t, err)
		require.True(t, a.Granted)
		require.Zero(t, etcd.IdleLeases(d))
		if broken {
			_, err = admin.Delete(t.Context(), etcd.MemberName("k", req.ID))
			require.NoError(t, err)
			require.ErrorIs(t, d.Release(t.Context(), req.Claim), driver.ErrLost)
			require.Zero(t, etcd.IdleLeases(d))
		} else {
			require.NoError(t, d.Release(t.Context(), req.Claim))
			require.Equal(t, 1, etcd.IdleLeases(d))
		}
	}
}

// A lease that a command without an answer has named is not kept: the command may put its member yet. It is
// revoked, and that member with it.
func TestLeaseOfALateCommandIsRevoked(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	admin, d := newClient(t, s), etcd.NewDriver(newClient(t, s))
	defer d.Close()
	first := request("first")
	_, err := d.Acquire(t.Context(), first)
	require.NoError(t, err)
	require.NoError(t, d.Release(t.Context(), first.Claim))

	s.Freeze()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	late := request("late")
	_, err = d.Acquire(ctx, late)
	require.Error(t, err)
	s.Thaw()
	if err := d.Release(t.Context(), late.Claim); err != nil {
		require.ErrorIs(t, err, driver.ErrLost)
	}
	require.Zero(t, etcd.IdleLeases(d))
	require.Eventually(t, func() bool {
		leases, err := admin.Leases(t.Context())
		require.NoError(t, err)
		members, err := admin.Get(t.Context(), "locker/k", clientv3.WithPrefix())
		require.NoError(t, err)
		return len(leases.Leases) == 0 && len(members.Kvs) == 0
	}, 30*time.Second, 20*time.Millisecond)
}

// A lease that was kept for the next claim, and that a person has revoked, is replaced by another one.
func TestIdleLeaseRevoked(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	admin, d := newClient(t, s), etcd.NewDriver(newClient(t, s))
	defer d.Close()
	require.Eventually(t, func() bool { // not if a second is over before the lease is revoked
		first := request("first")
		_, err := d.Acquire(t.Context(), first)
		require.NoError(t, err)
		require.NoError(t, d.Release(t.Context(), first.Claim))
		leases, err := admin.Leases(t.Context())
		require.NoError(t, err)
		for _, l := range leases.Leases {
			_, _ = admin.Revoke(t.Context(), l.ID)
		}
		return etcd.IdleLeases(d) > 0
	}, 30*time.Second, time.Millisecond)
	a, err := d.Acquire(t.Context(), request("next"))
	require.NoError(t, err)
	require.True(t, a.Granted)
}

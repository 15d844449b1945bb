package etcd_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"

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

// Renewals of one claim overlap, and the answer of the first one comes last: the lease to which the second one has moved
// the member is not revoked.
func TestRenewalsOfOneClaimOverlap(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	admin := newClient(t, s)
	moved, goOn := make(chan struct{}), make(chan struct{})
	var seen atomic.Bool
	client, err := clientv3.New(clientv3.Config{
		Endpoints: admin.Endpoints(), Logger: zap.NewNop(),
		DialOptions: []grpc.DialOption{grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			err := invoke(ctx, method, req, reply, cc, opts...)
			if txn, ok := req.(*pb.TxnRequest); ok && txn.Success[0].GetRequestTxn() != nil && seen.CompareAndSwap(false, true) {
				close(moved)
				<-goOn
			}
			return err
		})},
	})
	require.NoError(t, err)
	defer client.Close()
	d := etcd.NewDriver(client)
	defer d.Close()
	c := request("id").Claim
	_, err = d.Acquire(t.Context(), request("id"))
	require.NoError(t, err)
	renew := func() (outcome error) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // no try is sent once more
		defer cancel()
		d.Renew(ctx, []driver.Claim{c}, func(_ int, err error) { outcome = err })
		return outcome
	}
	first := make(chan error)
	go func() { first <- renew() }() // moves the member: the term of the first lease is not known
	<-moved
	require.NoError(t, renew())
	close(goOn)
	require.NoError(t, <-first)
	require.Eventually(t, func() bool {
		leases, err := admin.Leases(t.Context())
		require.NoError(t, err)
		return len(leases.Leases) == 1
	}, 30*time.Second, 20*time.Millisecond, "the leases that it had are revoked")
	require.NoError(t, renew())
}

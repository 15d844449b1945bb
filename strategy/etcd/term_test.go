package etcd_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/distlock/locker"
	"github.com/distlock/locker/driver"
	"github.com/distlock/locker/strategy/etcd"
	"github.com/distlock/locker/strategy/etcd/internal/members"
)

// leaseOf is the lease of the one member of a key.
func leaseOf(t *testing.T, admin *clientv3.Client, key string) clientv3.LeaseID {
	t.Helper()
	res, err := admin.Get(t.Context(), "locker/"+key+"\x00", clientv3.WithPrefix())
	require.NoError(t, err)
	require.Len(t, res.Kvs, 1)
	return clientv3.LeaseID(res.Kvs[0].Lease)
}

// A leader that is deposed may revoke leases of its term, however often the next leader has extended them. A lock that
// is renewed in the next term no longer depends on any.
func TestRevokedByADeposedLeader(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	admin, l, other := newClient(t, s), newLocker(t, newClient(t, s)), newLocker(t, newClient(t, s))
	warm, err := l.Lock(t.Context(), "warm") // the Locker learns the term
	require.NoError(t, err)
	require.NoError(t, warm.Unlock(t.Context()))
	lease, err := l.Lock(t.Context(), "k", locker.WithTTL(time.Minute))
	require.NoError(t, err)
	granted := leaseOf(t, admin, "k")
	require.NoError(t, lease.Renew(t.Context()))
	require.Equal(t, granted, leaseOf(t, admin, "k"), "in one term a claim keeps its lease")

	s.Kill() // it is elected anew, in another term
	require.NoError(t, s.Start())
	require.Eventually(t, func() bool { return lease.Renew(t.Context()) == nil }, 30*time.Second, 10*time.Millisecond)
	moved := leaseOf(t, admin, "k")
	require.NotEqual(t, granted, moved)
	_, err = admin.Revoke(t.Context(), granted) // as the deposed leader would; or the Locker has done so
	if err != nil {
		require.ErrorContains(t, err, "requested lease not found")
	}
	require.Eventually(t, func() bool { // its connection is back later than that of the other
		_, err = other.TryLock(t.Context(), "k")
		return !errors.Is(err, locker.ErrUnavailable)
	}, 30*time.Second, 10*time.Millisecond)
	require.ErrorIs(t, err, locker.ErrNotAcquired)
	require.NoError(t, lease.Renew(t.Context()))
	require.Equal(t, moved, leaseOf(t, admin, "k"))
	require.NoError(t, lease.Unlock(t.Context()))
	require.Eventually(t, func() bool {
		res, err := admin.TimeToLive(t.Context(), moved)
		return err == nil && res.TTL < 0
	}, 30*time.Second, 20*time.Millisecond, "the lease is revoked when nobody wants it")
}

// While the database is full a lock is renewed as long as the leader stays, and released, but not renewed in the next term.
func TestFullDatabase(t *testing.T) {
	t.Parallel()
	s, err := members.Take()
	require.NoError(t, err)
	t.Cleanup(func() { members.Put(s, true) })
	h := &harness{s: s, admin: newClient(t, s)}
	l := newLocker(t, newClient(t, s), locker.WithTTL(time.Minute))
	lease, err := l.Lock(t.Context(), "k")
	require.NoError(t, err)
	require.NoError(t, lease.Renew(t.Context())) // moves it from the first lease of the process, which has no term
	second, err := l.Lock(t.Context(), "second")
	require.NoError(t, err)
	require.NoError(t, h.alarm(t.Context(), pb.AlarmRequest_ACTIVATE))
	_, err = l.TryLock(t.Context(), "other")
	require.ErrorContains(t, err, "database space exceeded")
	require.NoError(t, lease.Renew(t.Context()))
	require.NoError(t, second.Unlock(t.Context()))

	s.Kill() // it is elected anew, in another term
	require.NoError(t, s.Start())
	require.Eventually(t, func() bool {
		err := lease.Renew(t.Context())
		require.Error(t, err)
		return strings.Contains(err.Error(), "database space exceeded")
	}, 30*time.Second, 10*time.Millisecond)
	require.Eventually(t, func() bool { return h.alarm(t.Context(), pb.AlarmRequest_DEACTIVATE) == nil }, 30*time.Second, 10*time.Millisecond)
	require.NoError(t, lease.Renew(t.Context()))
	require.NoError(t, lease.Unlock(t.Context()))
}

// deposed is a member whose keep-alives always succeed, and that reads in the term it is given. It has one member of a
// line.
type deposed struct {
	pb.UnimplementedKVServer
	pb.UnimplementedLeaseServer
	holder string

	mu     sync.Mutex
	term   uint64
	lease  int64 // of the holder; 0: there is none
	writes int64 // of the holder
	grants int
	moves  int
	lose   func() // is called when a move was carried out, and its answer is lost; nil: none is

	late  chan struct{} // keep-alives that have arrived are answered once it is closed; nil: at once
	ended bool          // keep-alives find no lease

	streams    int           // for keep-alives, opened so far
	frozen     int           // so many of the first streams lead to a server that is frozen
	leaderless int           // so many of the first streams lead to a server without a leader
	arrived    chan struct{} // takes a value for each keep-alive; nil: none
}

func (d *deposed) header() *pb.ResponseHeader {
	return &pb.ResponseHeader{RaftTerm: d.term, Revision: 1 + d.writes}
}

// Txn carries out what puts or moves the holder. Each reads the holder wherever it reads.
func (d *deposed) Txn(ctx context.Context, req *pb.TxnRequest) (*pb.TxnResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	res := &pb.TxnResponse{Succeeded: true}
	for _, op := range req.Success {
		answer := &pb.ResponseOp{}
		switch op := op.Request.(type) {
		case *pb.RequestOp_RequestPut:
			d.lease = op.RequestPut.Lease
			d.writes++
			answer.Response = &pb.ResponseOp_ResponsePut{ResponsePut: &pb.PutResponse{}}
		case *pb.RequestOp_RequestRange:
			found := &pb.RangeResponse{}
			if d.lease != 0 {
				found.Kvs = []*mvccpb.KeyValue{{Key: []byte(d.holder), CreateRevision: 2, ModRevision: 1 + d.writes, Lease: d.lease}}
			}
			answer.Response = &pb.ResponseOp_ResponseRange{ResponseRange: found}
		case *pb.RequestOp_RequestTxn:
			d.moves++
			d.writes++
			d.lease = op.RequestTxn.Success[0].GetRequestPut().Lease
			answer.Response = &pb.ResponseOp_ResponseTxn{ResponseTxn: &pb.TxnResponse{Succeeded: true}}
			if d.lose != nil {
				d.lose()
				<-ctx.Done()
				return nil, ctx.Err()
			}
		}
		res.Responses = append(res.Responses, answer)
	}
	res.Header = d.header()
	return res, nil
}

func (d *deposed) LeaseGrant(_ context.Context, req *pb.LeaseGrantRequest) (*pb.LeaseGrantResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.grants++
	return &pb.LeaseGrantResponse{Header: d.header(), ID: req.ID, TTL: req.TTL}, nil
}

func (*deposed) LeaseRevoke(context.Context, *pb.LeaseRevokeRequest) (*pb.LeaseRevokeResponse, error) {
	return &pb.LeaseRevokeResponse{}, nil
}

func (d *deposed) LeaseKeepAlive(s pb.Lease_LeaseKeepAliveServer) error {
	d.mu.Lock()
	number := d.streams
	d.streams++
	d.mu.Unlock()
	for {
		req, err := s.Recv()
		if err != nil {
			return err
		}
		res := &pb.LeaseKeepAliveResponse{ID: req.ID, TTL: 3600}
		d.mu.Lock()
		late, arrived, frozen, leaderless := d.late, d.arrived, number < d.frozen, number < d.leaderless
		if d.ended {
			res.TTL = 0
		}
		d.mu.Unlock()
		if arrived != nil {
			arrived <- struct{}{}
		}
		switch {
		case leaderless:
			return rpctypes.ErrGRPCNoLeader
		case frozen:
			<-s.Context().Done()
			return s.Context().Err()
		case late != nil:
			<-late
		}
		if err := s.Send(res); err != nil {
			return err
		}
	}
}

// set changes what the server does.
func (d *deposed) set(change func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	change()
}

// serve returns a driver for the server.
func (d *deposed) serve(t *testing.T) driver.Driver {
	t.Helper()
	server := grpc.NewServer()
	pb.RegisterKVServer(server, d)
	pb.RegisterLeaseServer(server, d)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{listener.Addr().String()}, Logger: zap.NewNop()})
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Close() })
	drv := etcd.NewDriver(client)
	t.Cleanup(func() { _ = drv.Close() })
	return drv
}

// A keep-alive that succeeds counts only if a later read shows the term in which the lease was granted. Otherwise the
// member gets another lease, and which one it has is seen again when the answer is lost.
func TestRenewalInAnotherTerm(t *testing.T) {
	t.Parallel()
	c := driver.Claim{Key: "k", ID: "id", Owner: "id", TTL: 10 * time.Second}
	d := &deposed{holder: etcd.MemberName(c.Key, c.ID), term: 5}
	drv := d.serve(t)
	renew := func(ctx context.Context) (outcome error) {
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		drv.Renew(ctx, []driver.Claim{c}, func(_ int, err error) { outcome = err })
		return outcome
	}
	made := func(grants, moves int, why string) {
		t.Helper()
		d.set(func() { require.Equal(t, []int{grants, moves}, []int{d.grants, d.moves}, why) })
	}
	a, err := drv.Acquire(t.Context(), driver.Request{Claim: c})
	require.NoError(t, err)
	require.True(t, a.Granted)
	made(1, 0, "an attempt")
	require.NoError(t, renew(t.Context()))
	made(2, 1, "of the first lease it is not known in which term it was granted")
	require.NoError(t, renew(t.Context()))
	made(2, 1, "in one term a claim keeps its lease")

	d.set(func() { d.term = 6 })
	require.NoError(t, renew(t.Context()))
	made(3, 2, "in the next term it moves")
	require.NoError(t, renew(t.Context()))
	made(3, 2, "and keeps the lease of that term")

	ctx, cancel := context.WithCancel(t.Context())
	d.set(func() { d.term, d.lose = 7, cancel })
	err = renew(ctx)
	require.Error(t, err)
	require.NotErrorIs(t, err, driver.ErrLost)
	d.set(func() { d.lose = nil })
	var before int64
	d.set(func() { before = d.lease })
	require.NoError(t, renew(t.Context()))
	d.set(func() {
		require.Equal(t, before, d.lease, "the lease that it has got without an answer is one of this term")
	})
}

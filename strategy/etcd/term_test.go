package etcd_test

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/distlock/locker/driver"
	"github.com/distlock/locker/strategy/etcd"
)

// deposed is a member that reads through the majority, in term 5, and answers keep-alives by itself, in a term of
// its own.
type deposed struct {
	pb.UnimplementedKVServer
	pb.UnimplementedLeaseServer
	holder string
	term   atomic.Uint64
}

func (*deposed) header(term uint64) *pb.ResponseHeader { return &pb.ResponseHeader{RaftTerm: term} }

func (d *deposed) Txn(context.Context, *pb.TxnRequest) (*pb.TxnResponse, error) {
	holder := &pb.RangeResponse{Kvs: []*mvccpb.KeyValue{{Key: []byte(d.holder), CreateRevision: 2, Lease: 7}}}
	return &pb.TxnResponse{Header: d.header(5), Succeeded: true, Responses: []*pb.ResponseOp{
		{Response: &pb.ResponseOp_ResponseRange{ResponseRange: holder}},
	}}, nil
}

func (d *deposed) LeaseKeepAlive(s pb.Lease_LeaseKeepAliveServer) error {
	for {
		req, err := s.Recv()
		if err != nil {
			return err
		}
		if err := s.Send(&pb.LeaseKeepAliveResponse{Header: d.header(d.term.Load()), ID: req.ID, TTL: 3600}); err != nil {
			return err
		}
	}
}

// A renewal is none if a leader of an earlier term has answered it: the leader of today does not know of it.
func TestRenewalByADeposedLeader(t *testing.T) {
	t.Parallel()
	c := driver.Claim{Key: "k", ID: "id", Owner: "id", TTL: 10 * time.Second}
	d := &deposed{holder: etcd.MemberName(c.Key, c.ID)}
	server := grpc.NewServer()
	pb.RegisterKVServer(server, d)
	pb.RegisterLeaseServer(server, d)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	go func() { _ = server.Serve(listener) }()
	defer server.Stop()
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{listener.Addr().String()}, Logger: zap.NewNop()})
	require.NoError(t, err)
	defer client.Close()
	drv := etcd.NewDriver(client)
	defer drv.Close()
	renew := func() (outcome error) {
		drv.Renew(t.Context(), []driver.Claim{c}, func(_ int, err error) { outcome = err })
		return outcome
	}
	d.term.Store(4)
	err = renew()
	require.ErrorContains(t, err, "earlier term")
	require.NotErrorIs(t, err, driver.ErrLost)
	require.False(t, driver.IsPermanent(err))
	d.term.Store(5)
	require.NoError(t, renew())
}

package etcd

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// conn sends commands on the client's connections, each to the server that is next in turn. Unlike the client
// it does not wait for a server while none can be reached, and repeats no command.
type conn struct {
	cc     *grpc.ClientConn
	kv     clientv3.KV
	leases pb.LeaseClient
	term   atomic.Uint64 // one in which something was committed before now; 0: none is known

	mu    sync.Mutex
	redid time.Time
}

func newConn(client *clientv3.Client) *conn {
	cc := client.ActiveConnection()
	return &conn{cc: cc, kv: clientv3.NewKVFromKVClient(promptKV{pb.NewKVClient(cc)}, client), leases: pb.NewLeaseClient(cc)}
}

// promptKV undoes the client's grpc.WaitForReady(true).
type promptKV struct{ pb.KVClient }

func (kv promptKV) Txn(ctx context.Context, req *pb.TxnRequest, opts ...grpc.CallOption) (*pb.TxnResponse, error) {
	return kv.KVClient.Txn(ctx, req, append(opts, grpc.WaitForReady(false))...)
}

// send sends a command that asks for a leader. A member that knows none has done nothing: the next one in turn
// gets it.
func send[T any](ctx context.Context, c *conn, command func(context.Context) (T, error)) (res T, err error) {
	ctx = clientv3.WithRequireLeader(ctx)
	for range 3 {
		if res, err = command(ctx); !errors.Is(rpctypes.Error(err), rpctypes.ErrNoLeader) {
			break
		}
	}
	if status.Code(err) == codes.Unavailable {
		c.redial()
	}
	return res, err
}

// learn takes the term of an answer: of the last command that the member had carried out. It is not the greatest one
// seen, for a store that replaces this one begins anew.
func (c *conn) learn(h *pb.ResponseHeader) { c.term.Store(h.GetRaftTerm()) }

// redial has gRPC connect now, and not when its back-off is over, which grows to two minutes. It does so at most
// once a second.
func (c *conn) redial() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.redid) > time.Second {
		c.redid = time.Now()
		c.cc.ResetConnectBackoff()
	}
}

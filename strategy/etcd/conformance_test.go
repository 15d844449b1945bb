package etcd_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/distlock/locker"
	"github.com/distlock/locker/conformance"
	"github.com/distlock/locker/driver"
	"github.com/distlock/locker/strategy/etcd"
	"github.com/distlock/locker/strategy/etcd/internal/members"
)

// TestMain serves the suite's child processes, too: their spec is an endpoint.
func TestMain(m *testing.M) {
	conformance.Main(members.Tests{M: m}, func(endpoint string, opts ...locker.Option) (locker.Locker, error) {
		client, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}, Logger: zap.NewNop()})
		if err != nil {
			return nil, err
		}
		return etcd.New(client, opts...)
	})
}

func TestConformance(t *testing.T) {
	conformance.Run(t, conformance.OfDriver(newHarness), conformance.WithCases(conformance.TroubleCases(
		conformance.Trouble{Name: "NoPermission", Permanent: true, Words: "user name is empty"},
		conformance.Trouble{Name: "NoSpace", Permanent: true, Words: "database space exceeded"},
		conformance.Trouble{Name: "Frozen"},
	)...))
}

// harness is one server. It can look into the store, break locks, put other programs'
// keys there, start processes, and make trouble for the server.
type harness struct {
	tb    testing.TB
	s     *members.Server
	admin *clientv3.Client

	mu      sync.Mutex
	hurt    bool // the server is not fit for another harness
	persist bool
	undo    []func(context.Context) error
	conns   []net.Conn
}

func newHarness(tb testing.TB) conformance.DriverHarness {
	tb.Helper()
	s, err := members.Take()
	require.NoError(tb, err)
	h := &harness{tb: tb, s: s}
	tb.Cleanup(func() { members.Put(s, h.hurt) })
	h.admin = newClient(tb, s)
	return h
}

// NewDriver makes a driver whose client's connections can be cut.
func (h *harness) NewDriver() (driver.Driver, error) {
	return h.driver(h.s.Endpoint(), func(ctx context.Context, _ string) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, "unix", h.s.Socket())
		if err == nil {
			h.mu.Lock()
			h.conns = append(h.conns, c)
			h.mu.Unlock()
		}
		return c, err
	})
}

func (h *harness) driver(endpoint string, dial func(context.Context, string) (net.Conn, error)) (driver.Driver, error) {
	cfg := clientv3.Config{Endpoints: []string{endpoint}, Logger: zap.NewNop()}
	if dial != nil {
		cfg.DialOptions = []grpc.DialOption{grpc.WithContextDialer(dial)}
	}
	client, err := clientv3.New(cfg)
	if err != nil {
		return nil, err
	}
	h.tb.Cleanup(func() { _ = client.Close() })
	return etcd.NewDriver(client), nil
}

// StoreAddr implements [conformance.Wired].
func (h *harness) StoreAddr() string { return h.s.Socket() }

// NewDriverAt implements [conformance.Wired].
func (h *harness) NewDriverAt(addr string) (driver.Driver, error) { return h.driver(addr, nil) }

func (h *harness) Capabilities() conformance.Capabilities {
	return conformance.Capabilities{Name: "etcd", Fencing: true, Permits: true, Notified: true, Fair: true, Admin: true, Signals: true, LossDetection: true}
}

// Timing: a lease lasts for whole seconds, and one more.
func (h *harness) Timing() conformance.Timing {
	return conformance.Timing{ShortTTL: 2 * time.Second, MinTTL: time.Second, Granularity: 2 * time.Second}
}

// ChildSpec implements [conformance.ChildMaker].
func (h *harness) ChildSpec() string { return h.s.Endpoint() }

// Background: a client and its connections have goroutines for as long as they are open. It keeps
// its one stream for watches, and the context of that, if a watch was ended before it began.
func (h *harness) Background(stack string) bool {
	return strings.Contains(stack, "google%2egolang%2eorg/grpc") || strings.Contains(stack, "google.golang.org/grpc") ||
		strings.Contains(stack, "clientv3.(*watch") || strings.Contains(stack, "/client/v3.(*watch") ||
		strings.Contains(stack, "context.(*cancelCtx).propagateCancel")
}

// The Inspector.

const root = "locker/"

// line is the members of a key, the holder first.
func (h *harness) line(ctx context.Context, key string) (start string, kvs []member, err error) {
	start = root + strings.ReplaceAll(key, "\x00", "\x00\xff") + "\x00\x01"
	res, err := h.admin.Get(ctx, start, clientv3.WithPrefix(), clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend))
	if err != nil {
		return start, nil, err
	}
	for _, kv := range res.Kvs {
		kvs = append(kvs, member{string(kv.Key), strings.TrimPrefix(string(kv.Key), start), clientv3.LeaseID(kv.Lease)})
	}
	return start, kvs, nil
}

type member struct {
	name, id string
	lease    clientv3.LeaseID
}

// Keys lists members and leases. The key that tokens count from is for ever, and one a store.
func (h *harness) Keys(ctx context.Context) (keys []conformance.StoredKey, err error) {
	res, err := h.admin.Get(ctx, "", clientv3.WithFromKey())
	if err != nil {
		return nil, err
	}
	for _, kv := range res.Kvs {
		name, id, ok := strings.Cut(strings.TrimPrefix(string(kv.Key), root), "\x00\x01")
		if !ok && string(kv.Key) == root+"tokens" {
			continue
		}
		left := time.Duration(-1)
		if kv.Lease != 0 {
			if left, err = h.left(ctx, clientv3.LeaseID(kv.Lease)); err != nil {
				return nil, err
			}
		}
		name = strings.ReplaceAll(name, "\x00\xff", "\x00")
		if _, all, err := h.line(ctx, name); err != nil {
			return nil, err
		} else if len(all) > 0 && all[0].id != id {
			name = "waits: " + name + " " + id
		}
		keys = append(keys, conformance.StoredKey{Name: name, TTL: left})
	}
	leases, err := h.admin.Leases(ctx)
	if err != nil {
		return nil, err
	}
	for _, l := range leases.Leases {
		if left, err := h.left(ctx, l.ID); err != nil {
			return nil, err
		} else if left > 0 {
			keys = append(keys, conformance.StoredKey{Name: fmt.Sprintf("lease %x", l.ID), TTL: left})
		}
	}
	return keys, nil
}

// left is what is left of a lease, rounded up.
func (h *harness) left(ctx context.Context, id clientv3.LeaseID) (time.Duration, error) {
	res, err := h.admin.TimeToLive(ctx, id)
	if err != nil || res.TTL < 0 {
		return 0, err
	}
	return time.Duration(res.TTL+1) * time.Second, nil
}

func (h *harness) Holder(ctx context.Context, key string) (string, error) {
	_, all, err := h.line(ctx, key)
	if err != nil || len(all) == 0 {
		return "", err
	}
	return all[0].id, nil
}

func (h *harness) TTL(ctx context.Context, key string) (time.Duration, error) {
	_, all, err := h.line(ctx, key)
	if err != nil || len(all) == 0 {
		return 0, err
	}
	return h.left(ctx, all[0].lease)
}

// The Breaker.

func (h *harness) Break(ctx context.Context, key string) error {
	_, all, err := h.line(ctx, key)
	if err == nil && len(all) > 0 {
		_, err = h.admin.Delete(ctx, all[0].name)
	}
	return err
}

func (h *harness) Expire(ctx context.Context, key string) error {
	_, all, err := h.line(ctx, key)
	if err == nil && len(all) > 0 {
		_, err = h.admin.Revoke(ctx, all[0].lease)
	}
	return err
}

// Steal deletes all members, those that wait as well: a foreign one would be the last of them.
func (h *harness) Steal(ctx context.Context, key string) error {
	lease, err := h.admin.Grant(ctx, 60)
	if err != nil {
		return err
	}
	start, all, err := h.line(ctx, key)
	if err != nil {
		return err
	}
	ops := []clientv3.Op{clientv3.OpPut(start+"thief", "", clientv3.WithLease(lease.ID))}
	for _, m := range all {
		ops = append(ops, clientv3.OpDelete(m.name))
	}
	_, err = h.admin.Txn(ctx).Then(ops...).Commit()
	return err
}

func (h *harness) Flush(ctx context.Context) error { return members.Empty(ctx, h.admin) }

// The Planter: a key of another program in the range.

func (h *harness) Foreigners() []conformance.Foreigner {
	return []conformance.Foreigner{{Name: "application"}}
}

func (h *harness) Plant(ctx context.Context, key, _ string) error {
	start, _, err := h.line(ctx, key)
	if err == nil {
		_, err = h.admin.Put(ctx, start+"application", "its value")
	}
	return err
}

func (h *harness) Intact(ctx context.Context, key, _ string) (bool, error) {
	start, _, _ := h.line(ctx, key)
	res, err := h.admin.Get(ctx, start+"application")
	return err == nil && len(res.Kvs) == 1 && string(res.Kvs[0].Value) == "its value" && res.Kvs[0].Version == 1, err
}

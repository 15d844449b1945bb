package redisconformance

import (
	"context"
	"fmt"
	"log"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/distlock/locker/conformance/faultproxy"
	"github.com/distlock/locker/internal/test/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// Topology is how the Redis under test is set up.
type Topology string

// The topologies.
const (
	Single   Topology = ""         // one server; the default
	Sentinel Topology = "sentinel" // a master and a replica, watched by a Sentinel
	Cluster  Topology = "cluster"  // three masters with a replica each
)

// deploy makes the deployment of s for a test.
func (s Strategy) deploy(tb testing.TB) *deployment {
	tb.Helper()
	if s.Server == nil {
		return deploy(tb, s.Topology)
	}
	return existing(tb, s.Server)
}

// deployment is a Redis of some topology, with a proxy before each server that
// holds data.
type deployment struct {
	topology Topology
	server   *redis.Options      // that is there already, or nil
	nodes    []*redistest.Server // that hold data, replicas included
	sentinel *redistest.Sentinel // or nil
	cluster  *redistest.Cluster  // or nil
	direct   redis.UniversalClient
	proxies  map[string]*faultproxy.Proxy // by the address of the server
}

// deploy makes a deployment for a test.
func deploy(tb testing.TB, topology Topology) *deployment {
	tb.Helper()
	d := &deployment{topology: topology, proxies: make(map[string]*faultproxy.Proxy)}
	switch topology {
	case Single:
		d.nodes = []*redistest.Server{redistest.Start(tb)}
		d.direct = d.nodes[0].Client(tb)
	case Sentinel:
		d.sentinel = redistest.BorrowSentinel(tb, 1, 1)
		d.nodes = d.sentinel.Nodes()
		d.direct = d.sentinel.Client(tb)
	case Cluster:
		d.cluster = redistest.BorrowCluster(tb, 3, 1)
		d.nodes = d.cluster.Nodes()
		d.direct = d.cluster.Client(tb)
	default:
		tb.Fatalf("no such topology: %q", topology)
	}
	for _, s := range d.nodes {
		p := faultproxy.Start(tb, s.Socket()) // the port of one that is killed may go to another
		p.Record(false)                       // the suite watches memory, too
		d.proxies[s.Addr()] = p
	}
	return d
}

// client makes a client that reaches the servers through the proxies. It is
// closed when the test is over.
func (d *deployment) client(tb testing.TB) redis.UniversalClient {
	tb.Helper()
	var rdb redis.UniversalClient
	switch d.topology {
	case Sentinel:
		o := d.sentinel.Options()
		o.Dialer = d.dial
		rdb = redis.NewFailoverClient(o)
	case Cluster:
		c := redis.NewClusterClient(d.clusterOptions())
		warmUp(c)
		rdb = c
	default:
		rdb = redis.NewClient(d.options())
	}
	tb.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

// warmUp lets a client find its cluster's nodes, which takes a while on a busy
// machine. They may be out of reach on purpose.
func warmUp(c *redis.ClusterClient) {
	found := make(chan struct{})
	go func() {
		defer close(found)
		_ = c.ForEachMaster(context.Background(), func(ctx context.Context, c *redis.Client) error { return c.Ping(ctx).Err() })
	}()
	select {
	case <-found:
	case <-time.After(time.Second):
	}
}

func (d *deployment) clusterOptions() *redis.ClusterOptions {
	return &redis.ClusterOptions{
		Addrs:  d.cluster.Addrs(),
		Dialer: d.dial,
		// Each node's would come with goroutines that outlive a Locker.
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
}

// dial connects to the proxy of a server, or to anything else itself.
func (d *deployment) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	if p := d.proxies[addr]; p != nil {
		addr = p.Addr()
	}
	return (&net.Dialer{}).DialContext(ctx, network, addr)
}

// spec shows a child process how to reach the servers, without the proxies.
func (d *deployment) spec() string {
	addrs := []string{d.nodes[0].Addr()}
	switch d.topology {
	case Sentinel:
		addrs = append([]string{d.sentinel.Options().MasterName}, d.sentinel.Addrs()...)
	case Cluster:
		addrs = d.cluster.Addrs()
	}
	return string(d.topology) + ";" + strings.Join(addrs, ";")
}

// connect makes a client of the servers that a spec names.
func connect(spec string) (redis.UniversalClient, error) {
	topology, rest, _ := strings.Cut(spec, ";")
	addrs := strings.Split(rest, ";")
	switch Topology(topology) {
	case Single:
		return redis.NewClient(&redis.Options{Addr: addrs[0]}), nil
	case Sentinel:
		return redis.NewFailoverClient(&redis.FailoverOptions{MasterName: addrs[0], SentinelAddrs: addrs[1:]}), nil
	case Cluster:
		return redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs}), nil
	}
	return nil, fmt.Errorf("no such topology: %q", topology)
}

// masters runs f on each server that holds keys of its own.
func (d *deployment) masters(ctx context.Context, f func(context.Context, *redis.Client) error) error {
	if c, ok := d.direct.(*redis.ClusterClient); ok {
		return c.ForEachMaster(ctx, f)
	}
	return f(ctx, d.direct.(*redis.Client))
}

// quiet keeps go-redis from telling of every Sentinel it has found.
type quiet struct{}

func (quiet) Printf(_ context.Context, format string, v ...any) {
	if !strings.HasPrefix(format, "sentinel: selected") && !strings.HasPrefix(format, "sentinel: new master") {
		log.Printf("redis: "+format, v...)
	}
}

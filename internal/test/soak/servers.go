package soak

import (
	"context"
	"net"
	"os"
	"slices"
	"time"

	"github.com/distlock/locker/internal/test/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// shard is the servers with the same data: one, or a master and its replica.
type shard struct {
	index int
	nodes []*node
}

// node is a server that holds data, and the link to it.
type node struct {
	server *redistest.Server // nil: it is the caller's
	addr   string
	dir    string // of its data, if it logs its writes
	link   *link
	admin  *redis.Client // which goes past the link
}

// deployment is the servers of an arena.
type deployment struct {
	topology Topology
	shards   []*shard
	sentinel *redistest.Sentinel // or nil
	cluster  *redistest.Cluster  // or nil
	own      Servers             // or nil
}

// notifying has a server report each change of a key, as locker.WithLossDetection needs it.
var notifying = redistest.WithConfig("--notify-keyspace-events", "Kg$xeh")

func deploy(st *stage, cfg Config, t Topology) *deployment {
	d := &deployment{topology: t}
	add := func(nodes ...*node) { d.shards = append(d.shards, &shard{len(d.shards), nodes}) }
	switch t {
	case Single:
		if cfg.Server != "" {
			add(connect(st, &node{addr: cfg.Server}))
		} else {
			add(persistent(st, cfg))
		}
	case Quorum:
		for range 5 {
			add(persistent(st, cfg))
		}
	case Sentinel:
		d.sentinel = redistest.StartSentinel(st, 1, 1, notifying)
		all := d.sentinel.Nodes()
		add(connect(st, &node{server: all[0]}), connect(st, &node{server: all[1]}))
	case Cluster:
		d.cluster = redistest.StartCluster(st, 3, 1, notifying)
		all := d.cluster.Nodes()
		for i := range 3 {
			add(connect(st, &node{server: all[i]}), connect(st, &node{server: all[3+i]}))
		}
	default:
		d.deployOwn(st, cfg.Own)
	}
	return d
}

// persistent starts a server that survives kill -9 with its data. The log of its writes
// need not survive a power cut, so it is on a file system that syncs in no time, if
// there is one.
func persistent(st *stage, cfg Config) *node {
	parent := "/dev/shm"
	if info, err := os.Stat(parent); err != nil || !info.IsDir() {
		parent = ""
	}
	dir, err := os.MkdirTemp(parent, "locker-soak-")
	if err != nil {
		st.Fatal(err)
	}
	st.Cleanup(func() { _ = os.RemoveAll(dir) })
	opts := []redistest.Option{redistest.WithAOF(), redistest.WithDir(dir), notifying}
	if slices.Contains(cfg.Faults, "clock") {
		opts = append(opts, redistest.WithSettableClock())
	}
	return connect(st, &node{server: redistest.Start(st, opts...), dir: dir})
}

// connect makes the link to a server.
func connect(st *stage, n *node) *node {
	upstream, options := n.addr, &redis.Options{Addr: n.addr, ReadTimeout: 10 * time.Second, PoolSize: 2}
	if n.server != nil {
		n.addr, upstream = n.server.Addr(), n.server.Socket() // the port of a server that is down may go to another one
		options.Network, options.Addr = "unix", upstream
	}
	var err error
	if n.link, err = newLink(upstream); err != nil {
		st.Fatal(err)
	}
	n.admin = redis.NewClient(options)
	st.Cleanup(func() {
		if err := n.link.Close(); err != nil {
			st.cancel(err)
		}
		_ = n.admin.Close()
	})
	return n
}

// do sends a command past the link. A server in trouble may refuse it: then that is a part
// of the trouble.
func (n *node) do(command ...any) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	_ = n.admin.Do(ctx, command...).Err()
}

// route tells a worker how to reach the servers.
type route struct {
	Topology Topology
	Addrs    []string          // of the servers, on Sentinel of the Sentinels
	Master   string            // on Sentinel: what they call the master
	Links    map[string]string // the link's address, by the server's
	Own      []string          // the links' addresses, on an Own topology: then the others are empty
}

func (d *deployment) route() route {
	r := route{Topology: d.topology, Links: make(map[string]string)}
	if d.own != nil {
		for _, n := range d.shards[0].nodes {
			r.Own = append(r.Own, n.link.Addr())
		}
		return r
	}
	for _, s := range d.shards {
		for _, n := range s.nodes {
			r.Addrs = append(r.Addrs, n.addr)
			r.Links[n.addr] = n.link.Addr()
		}
	}
	if d.sentinel != nil {
		o := d.sentinel.Options()
		r.Addrs, r.Master = o.SentinelAddrs, o.MasterName
	}
	return r
}

// clients returns the clients of a worker.
func (r route) clients() (all []redis.UniversalClient) {
	switch r.Topology {
	case Sentinel:
		return append(all, redis.NewFailoverClient(&redis.FailoverOptions{MasterName: r.Master, SentinelAddrs: r.Addrs, Dialer: r.dial}))
	case Cluster:
		return append(all, redis.NewClusterClient(&redis.ClusterOptions{
			Addrs: r.Addrs, Dialer: r.dial,
			MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
		}))
	}
	for _, addr := range r.Addrs {
		all = append(all, redis.NewClient(&redis.Options{Addr: r.Links[addr]}))
	}
	return all
}

// dial connects to the link of a server, or to a Sentinel itself.
func (r route) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	if link, ok := r.Links[addr]; ok {
		addr = link
	}
	return (&net.Dialer{}).DialContext(ctx, network, addr)
}

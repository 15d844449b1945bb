package redisconformance

import (
	"context"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/distlock/locker"
	"github.com/distlock/locker/conformance"
	"github.com/distlock/locker/conformance/internal/suite"
	"github.com/redis/go-redis/v9"
)

const topologyGroup = "topology"

var topologyCases = []conformance.Case{
	{Name: "ReplicasAreNotAsked", Group: topologyGroup, Rules: []string{"R1"}, Isolated: true, Test: testReplicasAreNotAsked,
		Contract: "a client that reads from replicas locks on masters all the same"},
}

var connectionCases = []conformance.Case{
	{Name: "ConnectionsEndWithClose", Group: topologyGroup, Rules: []string{"R24"}, Isolated: true, Test: testConnectionsEndWithClose,
		Contract: "after Close no connection to any server remains but the caller's"},
}

// Cases returns the cases for Redis beyond the suite, for [conformance.WithCases]: on
// one server in the troubles it can be in, elsewhere in what only more servers can
// do. They run on harnesses of [Strategy.Harness] only.
func (s Strategy) Cases() []conformance.Case {
	switch s.Topology {
	case Single:
		return slices.Concat(connectionCases, troubleCases(), poolCases, onLinux(clockCases))
	case Sentinel:
		return slices.Concat(topologyCases, connectionCases, failoverCases)
	case Cluster:
		return slices.Concat(topologyCases, connectionCases, failoverCases, slotCases)
	}
	return nil
}

func testReplicasAreNotAsked(t *conformance.T) {
	h := t.Harness().(*harness)
	var reader *redis.ClusterClient
	if h.cluster != nil {
		o := h.clusterOptions()
		o.RouteRandomly = true
		reader = redis.NewClusterClient(o)
	} else {
		o := h.sentinel.Options()
		o.RouteRandomly = true
		reader = redis.NewFailoverClusterClient(o)
	}
	defer reader.Close()
	t.Eventually(t.Timing().Patience, "the client knows of the replicas", func() bool {
		var known atomic.Int32
		err := reader.ForEachSlave(t.Context(), func(context.Context, *redis.Client) error {
			known.Add(1)
			return nil
		})
		return err == nil && int(known.Load()) == len(h.nodes)/2
	})
	l, err := h.Strategy.New(reader, suite.WithObserver(nil))
	t.NoError(err, "New")
	defer l.Close()
	other := t.Locker()
	for i := range 10 {
		key := t.Key(strconv.Itoa(i))
		lease := t.Lock(l, key)
		t.Taken(other, key)
		w := t.Wait(other, key)
		t.NoError(lease.Renew(t.Context()), "Renew")
		t.Unlock(lease)
		next := t.Granted(w, t.Timing().PollWithin)
		w = t.Wait(l, key)
		t.Unlock(next)
		t.Unlock(t.Granted(w, t.Timing().PollWithin))
	}
	for _, s := range h.nodes {
		c := s.Client(t)
		role, err := c.Do(t.Context(), "role").Slice()
		t.NoError(err, "asking for a role")
		if role[0] != "slave" {
			continue
		}
		stats, err := c.Info(t.Context(), "commandstats").Result()
		t.NoError(err, "asking for statistics")
		// (Sentinels subscribe at replicas, too.)
		for _, cmd := range []string{"eval", "evalsha", "ssubscribe", "blpop"} {
			if strings.Contains(stats, "cmdstat_"+cmd+":") {
				t.Errorf("a replica was sent %s:\n%s", cmd, stats)
			}
		}
	}
}

// dialed counts connections that are open.
type dialed struct {
	net.Conn
	open *atomic.Int32
	once sync.Once
}

func (d *dialed) Close() error {
	d.once.Do(func() { d.open.Add(-1) })
	return d.Conn.Close()
}

// connectBy returns a client that connects by dial.
func (h *harness) connectBy(dial func(ctx context.Context, network, addr string) (net.Conn, error)) redis.UniversalClient {
	switch h.Topology {
	case Cluster:
		o := h.clusterOptions()
		o.Dialer = dial
		return redis.NewClusterClient(o)
	case Sentinel:
		o := h.sentinel.Options()
		o.Dialer = dial
		return redis.NewFailoverClient(o)
	}
	return redis.NewClient(&redis.Options{Addr: h.nodes[0].Addr(), Dialer: dial})
}

func testConnectionsEndWithClose(t *conformance.T) {
	var open atomic.Int32
	counting := func(h *harness) func(ctx context.Context, network, addr string) (net.Conn, error) {
		return func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := h.dial(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			open.Add(1)
			return &dialed{Conn: conn, open: &open}, nil
		}
	}
	connect := func(h *harness) redis.UniversalClient { return h.connectBy(counting(h)) }
	var clients []redis.UniversalClient
	newLocker := func() (locker.Locker, error) {
		switch h := t.Harness().(type) {
		case *quorumHarness:
			var rdbs []redis.UniversalClient
			for _, n := range h.all {
				rdbs = append(rdbs, connect(n))
			}
			clients = append(clients, rdbs...)
			return h.Quorum.New(rdbs, suite.WithObserver(nil))
		default:
			rdb := connect(h.(*harness))
			clients = append(clients, rdb)
			return h.(*harness).Strategy.New(rdb, suite.WithObserver(nil))
		}
	}
	var ls []locker.Locker
	for range 2 {
		l, err := newLocker()
		t.NoError(err, "New")
		ls = append(ls, l)
	}
	for i := range 20 { // on all nodes
		key := t.Key(strconv.Itoa(i))
		lease := t.Lock(ls[0], key)
		w := t.Wait(ls[1], key)
		t.NoError(lease.Renew(t.Context()), "Renew")
		t.Unlock(lease)
		t.Unlock(t.Granted(w, t.Timing().PollWithin))
	}
	lease := t.Lock(ls[0], t.Key("held"))
	w := t.Wait(ls[1], lease.Key())
	for _, l := range ls {
		t.NoError(l.Close(), "Close")
	}
	_ = t.Refused(w, t.Timing().Slack)
	t.Unlock(lease) // on the caller's client
	if open.Load() == 0 {
		t.Errorf("the caller's connections are gone, too")
	}
	for _, rdb := range clients {
		t.NoError(rdb.Close(), "closing the caller's client")
	}
	t.Eventually(t.Timing().Settle, "connections end", func() bool { return open.Load() == 0 })
}

package redistest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// A Cluster is a Redis Cluster of servers on this machine. A shard is a master
// and its replicas, whoever of them is the master at the time.
//
// Nothing fails over by itself, lest a busy machine promotes a replica: see
// [Cluster.Failover] and [Cluster.KillMaster].
type Cluster struct {
	nodes   []*Server
	admins  []*redis.Client // by node
	shards  [][]int         // indexes of nodes
	changed atomic.Bool     // it is no longer as it was started
}

// StartCluster starts a cluster for this test: so many masters, which share the
// slots evenly, with so many replicas each. It returns when all agree.
func StartCluster(tb testing.TB, masters, replicasPer int, opts ...Option) *Cluster {
	tb.Helper()
	c, err := launchCluster(masters, replicasPer, opts...)
	if err != nil {
		tb.Fatalf("redistest: cluster: %v", err)
	}
	tb.Cleanup(c.discard)
	return c
}

const slots = 16384

func launchCluster(masters, replicasPer int, opts ...Option) (*Cluster, error) {
	opts = append([]Option{WithConfig(
		"--cluster-enabled", "yes",
		"--cluster-node-timeout", "4000", // gossip takes half of it
		"--cluster-replica-no-failover", "yes",
		"--repl-ping-replica-period", "1", // a replica that has heard nothing is not listed
		"--repl-diskless-sync", "yes",
		"--repl-diskless-sync-delay", "0",
	)}, opts...)
	nodes, err := launchAll(masters*(1+replicasPer), opts...)
	if err != nil {
		return nil, err
	}
	c := &Cluster{nodes: nodes, shards: make([][]int, masters)}
	for i, s := range nodes {
		c.admins = append(c.admins, s.admin())
		shard := i
		if i >= masters {
			shard = (i - masters) / replicasPer
		}
		c.shards[shard] = append(c.shards[shard], i)
	}
	if err := c.form(); err != nil {
		c.discard()
		return nil, err
	}
	return c, nil
}

// addSlots gives node the slots from to to. CLUSTER ADDSLOTSRANGE, which is shorter, is unknown before Redis 7.0.
func addSlots(ctx context.Context, node *redis.Client, from, to int) error {
	var numbers []int
	for slot := from; slot <= to; slot++ {
		numbers = append(numbers, slot)
	}
	return node.ClusterAddSlots(ctx, numbers...).Err()
}

// StartClusterOfOne starts a cluster of one node, which has all slots. It returns when the cluster is up, after some
// two seconds.
func StartClusterOfOne(tb testing.TB, opts ...Option) *Server {
	tb.Helper()
	srv := Start(tb, append([]Option{WithConfig("--cluster-enabled", "yes")}, opts...)...)
	node := srv.admin()
	defer node.Close()
	if err := errors.Join(addSlots(tb.Context(), node, 0, slots-1), until("the cluster is up", func(ctx context.Context) error {
		info, err := node.ClusterInfo(ctx).Result()
		if err == nil && !strings.Contains(info, "cluster_state:ok") {
			err = errors.New(info)
		}
		return err
	})); err != nil {
		tb.Fatalf("redistest: a cluster of one node: %v", err)
	}
	return srv
}

// form makes a cluster of nodes that do not know of one another.
func (c *Cluster) form() error {
	ctx := context.Background()
	for i, members := range c.shards {
		master := c.admins[members[0]]
		from, to := i*slots/len(c.shards), (i+1)*slots/len(c.shards)-1
		if err := errors.Join(
			master.Do(ctx, "cluster", "set-config-epoch", i+1).Err(),
			addSlots(ctx, master, from, to),
		); err != nil {
			return err
		}
	}
	for _, s := range c.nodes[1:] {
		if err := c.admins[0].ClusterMeet(ctx, "127.0.0.1", fmt.Sprint(s.port)).Err(); err != nil {
			return err
		}
	}
	for _, members := range c.shards {
		id, err := c.admins[members[0]].ClusterMyID(ctx).Result()
		if err != nil {
			return err
		}
		for _, i := range members[1:] {
			if err := until("a replica knows its master", func(ctx context.Context) error {
				return c.admins[i].ClusterReplicate(ctx, id).Err()
			}); err != nil {
				return err
			}
		}
	}
	return c.settle(func(ctx context.Context) error {
		for _, members := range c.shards {
			for _, i := range members[1:] {
				if err := follows(ctx, c.admins[i]); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// settle waits until all nodes that answer agree on who has which slots, with
// all of these reachable, and on the epoch, and extra holds. (A node that does not know the
// latest epoch gets a slot with an old one, and loses it to a message that was sent before. Then
// both masters take the other for the slot's owner, for good.)
func (c *Cluster) settle(extra func(ctx context.Context) error) error {
	return until("the cluster agrees", func(ctx context.Context) error {
		var agreed string
		for i, s := range c.nodes {
			if !s.answers() {
				continue
			}
			info, err := c.admins[i].ClusterInfo(ctx).Result()
			if err != nil {
				return err
			}
			for _, want := range []string{"cluster_state:ok", "cluster_slots_assigned:16384", fmt.Sprintf("cluster_known_nodes:%d", len(c.nodes))} {
				if !strings.Contains(info, want+"\r\n") {
					return fmt.Errorf("%s lacks %s:\n%s", s.Addr(), want, info)
				}
			}
			view, err := c.view(ctx, i)
			if err != nil {
				return err
			}
			if err := c.linked(ctx, i); err != nil {
				return err
			}
			view += "\nepoch " + epochOf(info)
			if agreed == "" {
				agreed = view
			} else if view != agreed {
				return fmt.Errorf("%s sees\n%s, another node\n%s", s.Addr(), view, agreed)
			}
		}
		return extra(ctx)
	})
}

// linked reports nil when a node has its links to the nodes that answer. Before, it does not hand on to them what is
// published.
func (c *Cluster) linked(ctx context.Context, node int) error {
	links, err := c.admins[node].ClusterNodes(ctx).Result()
	if err != nil {
		return err
	}
	for _, s := range c.nodes {
		for line := range strings.Lines(links) {
			if strings.Contains(line, s.Addr()+"@") && strings.Contains(line, " disconnected") && s.answers() {
				return fmt.Errorf("%s has no link to %s", c.nodes[node].Addr(), s.Addr())
			}
		}
	}
	return nil
}

// epochOf returns the line about the cluster's epoch of what CLUSTER INFO says.
func epochOf(info string) string {
	_, epoch, _ := strings.Cut(info, "cluster_current_epoch:")
	epoch, _, _ = strings.Cut(epoch, "\r\n")
	return epoch
}

// view is who has which slots in the eyes of a node, in a form to be compared.
// (Replicas are not part of it: word of them takes seconds to spread.)
func (c *Cluster) view(ctx context.Context, node int) (string, error) {
	ranges, err := c.slots(ctx, node)
	lines := make([]string, 0, len(ranges))
	for _, r := range ranges {
		lines = append(lines, fmt.Sprintf("%05d-%05d %s", r.first, r.last, r.master))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n"), err
}

// follows reports nil when a replica has its master's data.
func follows(ctx context.Context, replica *redis.Client) error {
	info, err := replica.Info(ctx, "replication").Result()
	if err == nil && (!strings.Contains(info, "role:slave") || !strings.Contains(info, "master_link_status:up")) {
		err = fmt.Errorf("not yet a replica with a link to its master:\n%s", info)
	}
	return err
}

// Addrs returns the addresses of all nodes.
func (c *Cluster) Addrs() []string {
	addrs := make([]string, 0, len(c.nodes))
	for _, s := range c.nodes {
		addrs = append(addrs, s.Addr())
	}
	return addrs
}

// Client returns a new client with default options, closed when the test is over.
func (c *Cluster) Client(tb testing.TB) *redis.ClusterClient {
	tb.Helper()
	rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.Addrs()})
	tb.Cleanup(func() { _ = rdb.Close() }) // the test may have closed it
	return rdb
}

// Nodes returns all nodes: first those that were started as masters, then the
// replicas of the first, and so on.
func (c *Cluster) Nodes() []*Server { return slices.Clone(c.nodes) }

// Node returns one of Nodes.
func (c *Cluster) Node(i int) *Server { return c.nodes[i] }

// Shards returns how many shards there are.
func (c *Cluster) Shards() int { return len(c.shards) }

func (c *Cluster) discard() {
	for _, a := range c.admins {
		_ = a.Close()
	}
	discardAll(c.nodes)
}

// empty deletes everything on the masters.
func (c *Cluster) empty() error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	for _, members := range c.shards {
		if err := c.admins[members[0]].FlushAll(ctx).Err(); err != nil {
			return err
		}
	}
	return nil
}

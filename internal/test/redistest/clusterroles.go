package redistest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// Slot returns the slot of key.
func (c *Cluster) Slot(tb testing.TB, key string) int {
	tb.Helper()
	slot, err := c.admins[c.anyNode()].ClusterKeySlot(tb.Context(), key).Result()
	if err != nil {
		tb.Fatalf("redistest: %v", err)
	}
	return int(slot)
}

// ShardOf returns the shard that has key now.
func (c *Cluster) ShardOf(tb testing.TB, key string) int {
	tb.Helper()
	owner := c.owner(tb, c.Slot(tb, key))
	return slices.IndexFunc(c.shards, func(members []int) bool { return slices.Contains(members, owner) })
}

// owner returns the index of the node that has a slot.
func (c *Cluster) owner(tb testing.TB, slot int) int {
	tb.Helper()
	ranges, err := c.slots(tb.Context(), c.anyNode())
	for _, r := range ranges {
		if i := slices.Index(c.Addrs(), r.master); i >= 0 && r.first <= slot && slot <= r.last {
			return i
		}
	}
	tb.Fatalf("redistest: no node has slot %d: %v", slot, err)
	return -1
}

// slotRange is slots that a master has.
type slotRange struct {
	first, last int
	master      string // its address
}

// slots asks a node who has which slots. (CLUSTER SHARDS is unknown to Redis 6.)
func (c *Cluster) slots(ctx context.Context, node int) ([]slotRange, error) {
	reply, err := c.admins[node].Do(ctx, "cluster", "slots").Slice()
	ranges := make([]slotRange, 0, len(reply))
	for _, r := range reply {
		// first, last, the master, its replicas...
		if r, ok := r.([]any); ok && len(r) > 2 {
			master, _ := r[2].([]any) // host, port, ...
			var s slotRange
			if _, err := fmt.Sscan(fmt.Sprint(r[0], " ", r[1]), &s.first, &s.last); err != nil || len(master) < 2 {
				return nil, fmt.Errorf("CLUSTER SLOTS answered %v", reply)
			}
			s.master = fmt.Sprintf("%v:%v", master[0], master[1])
			ranges = append(ranges, s)
		}
	}
	return ranges, err
}

// MasterOf returns the node that has key now.
func (c *Cluster) MasterOf(tb testing.TB, key string) *Server {
	tb.Helper()
	return c.Master(tb, c.ShardOf(tb, key))
}

// Master returns the present master of a shard.
func (c *Cluster) Master(tb testing.TB, shard int) *Server {
	tb.Helper()
	return c.nodes[c.master(tb, shard)]
}

// Replicas returns the present replicas of a shard that run.
func (c *Cluster) Replicas(tb testing.TB, shard int) []*Server {
	tb.Helper()
	var all []*Server
	master := c.master(tb, shard)
	for _, i := range c.shards[shard] {
		if i != master && c.nodes[i].running() {
			all = append(all, c.nodes[i])
		}
	}
	return all
}

// master returns the index of a shard's master: of those who take themselves for it
// the one promoted last.
func (c *Cluster) master(tb testing.TB, shard int) int {
	tb.Helper()
	best, latest := -1, int64(-1)
	for _, i := range c.shards[shard] {
		if !c.nodes[i].answers() {
			continue
		}
		text, err := c.admins[i].ClusterNodes(tb.Context()).Result()
		if err != nil {
			tb.Fatalf("redistest: %v", err)
		}
		for line := range strings.Lines(text) {
			// id address flags master ping pong epoch link slots...
			f := strings.Fields(line)
			var epoch int64
			if len(f) < 9 || !strings.HasPrefix(f[2], "myself,master") {
				continue
			}
			if _, err := fmt.Sscan(f[6], &epoch); err == nil && epoch > latest {
				best, latest = i, epoch
			}
		}
	}
	if best < 0 {
		tb.Fatalf("redistest: shard %d has no master that answers", shard)
	}
	return best
}

// anyNode returns a node that can be asked.
func (c *Cluster) anyNode() int {
	return max(0, slices.IndexFunc(c.nodes, (*Server).answers))
}

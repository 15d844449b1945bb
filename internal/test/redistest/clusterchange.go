package redistest

import (
	"context"
	"slices"
	"testing"
)

// Failover makes a replica of the shard its master, in an orderly way: no write
// is lost, and the old master becomes a replica. It returns when all nodes know.
//
// It does what CLUSTER FAILOVER does, except that no node votes: for a shard there
// is one vote in a while.
func (c *Cluster) Failover(tb testing.TB, shard int) {
	tb.Helper()
	old := c.master(tb, shard)
	master, ctx := c.admins[old], tb.Context()
	if master.Do(ctx, "client", "pause", 10_000, "write").Err() == nil {
		defer func() { _ = master.Do(context.WithoutCancel(ctx), "client", "unpause").Err() }()
	}
	synced(tb, master, c.Replicas(tb, shard))
	c.promote(tb, shard, old)
}

// KillMaster kills the shard's master and promotes a replica, which may lack the
// last writes (and does after StopReplication). It returns the old master, which is
// down, when all others know.
func (c *Cluster) KillMaster(tb testing.TB, shard int) *Server {
	tb.Helper()
	c.changed.Store(true)
	old, replicas := c.master(tb, shard), c.Replicas(tb, shard)
	c.nodes[old].Kill()
	resume(replicas)
	c.promote(tb, shard, old)
	return c.nodes[old]
}

// promote makes another member of the shard than old its master.
func (c *Cluster) promote(tb testing.TB, shard, old int) {
	tb.Helper()
	c.changed.Store(true)
	i := slices.IndexFunc(c.shards[shard], func(i int) bool { return i != old && c.nodes[i].answers() })
	if i < 0 {
		tb.Fatalf("redistest: shard %d has no replica to promote", shard)
	}
	next := c.shards[shard][i]
	err := c.admins[next].Do(tb.Context(), "cluster", "failover", "takeover").Err()
	if err == nil {
		err = c.settle(func(ctx context.Context) error {
			if !c.nodes[old].answers() {
				return nil
			}
			return follows(ctx, c.admins[old])
		})
	}
	if err != nil {
		tb.Fatalf("redistest: failover: %v", err)
	}
}

// MoveSlot moves a slot with its keys to another shard.
func (c *Cluster) MoveSlot(tb testing.TB, slot, toShard int) {
	tb.Helper()
	m := c.StartMove(tb, slot, toShard)
	m.MoveKeys(tb)
	m.Finish(tb)
}

// A Move is a slot on its way from one master to another. Until Finish the old
// one answers for keys it still has, and sends clients to the new one, by ASK,
// for those it has not; a command that names keys of both kinds gets TRYAGAIN.
// After Finish it is MOVED.
type Move struct {
	c        *Cluster
	slot     int
	from, to int // nodes
}

// StartMove begins to move a slot to another shard; no key has moved yet.
func (c *Cluster) StartMove(tb testing.TB, slot, toShard int) *Move {
	tb.Helper()
	c.changed.Store(true)
	m := &Move{c: c, slot: slot, from: c.owner(tb, slot), to: c.master(tb, toShard)}
	if m.from == m.to {
		tb.Fatalf("redistest: slot %d is there already", slot)
	}
	m.do(tb, m.to, "cluster", "setslot", slot, "importing", m.id(tb, m.from))
	m.do(tb, m.from, "cluster", "setslot", slot, "migrating", m.id(tb, m.to))
	return m
}

// MoveKeys moves the keys that are there, or those given.
func (m *Move) MoveKeys(tb testing.TB, keys ...string) {
	tb.Helper()
	given := len(keys) > 0
	for {
		if !given {
			var err error
			keys, err = m.c.admins[m.from].ClusterGetKeysInSlot(tb.Context(), m.slot, 100).Result()
			if err != nil {
				tb.Fatalf("redistest: slot %d: %v", m.slot, err)
			}
		}
		if len(keys) == 0 {
			return
		}
		cmd := []any{"migrate", "127.0.0.1", m.c.nodes[m.to].port, "", 0, 5000, "keys"}
		for _, k := range keys {
			cmd = append(cmd, k)
		}
		m.do(tb, m.from, cmd...)
		if given {
			return
		}
	}
}

// Finish moves what keys are left and makes the new master the only one. It
// returns when all nodes know.
func (m *Move) Finish(tb testing.TB) {
	tb.Helper()
	m.MoveKeys(tb)
	id := m.id(tb, m.to)
	for _, node := range []int{m.to, m.from} {
		m.do(tb, node, "cluster", "setslot", m.slot, "node", id)
	}
	if err := m.c.settle(func(context.Context) error { return nil }); err != nil {
		tb.Fatalf("redistest: slot %d: %v", m.slot, err)
	}
}

func (m *Move) do(tb testing.TB, node int, args ...any) {
	tb.Helper()
	if err := m.c.admins[node].Do(tb.Context(), args...).Err(); err != nil {
		tb.Fatalf("redistest: %v on %s: %v", args[:2], m.c.nodes[node].Addr(), err)
	}
}

func (m *Move) id(tb testing.TB, node int) string {
	tb.Helper()
	id, err := m.c.admins[node].ClusterMyID(tb.Context()).Result()
	if err != nil {
		tb.Fatalf("redistest: %v", err)
	}
	return id
}

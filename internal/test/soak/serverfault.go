package soak

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/distlock/locker/internal/test/redistest"
)

func restart(t *trouble, s *shard) {
	n := s.nodes[0]
	n.server.Kill()
	t.sleep(0, 300*time.Millisecond)
	t.revive(n)
}

func (t *trouble) revive(n *node) {
	if err := n.server.Revive(); err != nil && t.a.stage.ctx.Err() == nil {
		t.a.stage.Fatal(err)
	}
}

func loseData(t *trouble, s *shard) {
	n := s.nodes[0]
	n.server.Kill()
	if t.a.topology == Quorum {
		t.stayAway()
	} else {
		t.loss = lossAll
		t.sleep(0, 300*time.Millisecond)
	}
	if err := os.RemoveAll(filepath.Join(n.dir, "appendonlydir")); err != nil {
		t.a.stage.Fatal(err)
	}
	t.revive(n)
}

// stayAway lets the claims expire that a server of a quorum has forgotten: docs/strategies.md
// wants it to be kept away for the longest TTL.
func (t *trouble) stayAway() {
	most := t.a.maxTTL
	time.Sleep(t.between(most+most/5+100*time.Millisecond, 2*most))
}

func flush(t *trouble, s *shard) {
	t.loss = lossAll
	s.nodes[0].do("flushall")
}

func pause(t *trouble, s *shard) {
	n := s.nodes[t.r.IntN(len(s.nodes))]
	n.server.Pause()
	t.sleep(0, 2*time.Second)
	n.server.Resume()
}

// clockJump sets a clock ahead and back. What is ahead expires early, which loses locks of
// a single server. On the way back the server keeps keys for longer by the jump, and its
// tokens are ahead of its clock for so long; so the fault lasts until then.
func clockJump(t *trouble, s *shard) {
	n := s.nodes[0]
	ahead := time.Second * time.Duration(1+t.r.IntN(3))
	if t.a.topology == Quorum {
		ahead = time.Second // less than other servers that lose their data stay away
		n.link.Refuse(true) // a clock that jumps is like a restart without data
	} else {
		t.loss = lossSome
	}
	n.server.SetClock(t.a.stage, ahead)
	if t.a.topology == Quorum {
		t.stayAway()
		n.link.Refuse(false)
	}
	t.sleep(0, t.a.maxTTL)
	n.server.SetClock(t.a.stage, 0)
	time.Sleep(ahead)
}

// failover promotes a replica. On a cluster no write is lost. Sentinels let the old master
// go on for a while: what it writes meanwhile is lost.
func failover(t *trouble, s *shard) {
	d := t.a.deployment
	if d.cluster != nil {
		d.cluster.Failover(t.a.stage, s.index)
		return
	}
	t.loss = lossUnconfirmed
	old := d.sentinel.Master(t.a.stage)
	d.sentinel.Failover(t.a.stage)
	t.demote(s, old)
}

// killMaster kills a master. What its replica has not heard of is lost.
func killMaster(t *trouble, s *shard) {
	t.loss = lossUnconfirmed
	st, d := t.a.stage, t.a.deployment
	var old *redistest.Server
	if d.cluster != nil {
		old = d.cluster.KillMaster(st, s.index)
	} else {
		old = d.sentinel.KillMaster(st)
	}
	t.revive(s.node(old))
	t.demote(s, old)
}

// killAhead is killMaster after a while in which the master wrote for itself alone.
func killAhead(t *trouble, s *shard) {
	if d := t.a.deployment; d.cluster != nil {
		d.cluster.StopReplication(t.a.stage, s.index)
	} else {
		d.sentinel.StopReplication(t.a.stage)
	}
	t.sleep(0, t.a.maxTTL)
	killMaster(t, s)
}

// demote makes a former master a replica of the present one, and waits until it is. A
// cluster does the first part by itself; Sentinels would take ten seconds.
func (t *trouble) demote(s *shard, old *redistest.Server) {
	st, d := t.a.stage, t.a.deployment
	n := s.node(old)
	if d.sentinel != nil {
		host, port, _ := strings.Cut(d.sentinel.Master(st).Addr(), ":")
		n.do("replicaof", host, port)
	}
	for end := time.Now().Add(30 * time.Second); st.ctx.Err() == nil; time.Sleep(20 * time.Millisecond) { // servers tell of no event
		info, err := n.admin.Info(context.Background(), "replication").Result()
		if err == nil && strings.Contains(info, "role:slave") && strings.Contains(info, "master_link_status:up") {
			return
		}
		if time.Now().After(end) {
			st.Fatal(fmt.Errorf("the server at %s does not become a replica: %s (%w)", old.Addr(), info, err))
		}
	}
}

func (s *shard) node(server *redistest.Server) *node {
	return s.nodes[slices.IndexFunc(s.nodes, func(n *node) bool { return n.server == server })]
}

func moveSlot(t *trouble, _ *shard) {
	st, c := t.a.stage, t.a.deployment.cluster
	key := t.a.strategies[t.r.IntN(len(t.a.strategies))].key(t.r.IntN(t.a.cfg.Keys))
	m := c.StartMove(st, c.Slot(st, key), (c.ShardOf(st, key)+1+t.r.IntN(c.Shards()-1))%c.Shards())
	t.sleep(0, 500*time.Millisecond)
	m.MoveKeys(st)
	t.sleep(0, 500*time.Millisecond)
	m.Finish(st)
}

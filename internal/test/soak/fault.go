package soak

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/distlock/locker/internal/bound"
)

// Fault is something the nemesis does.
type Fault struct {
	Name, Doc string

	on []Topology // nil: on all
	// One of these is set, and makes the fault: to a process, to the links of a shard, or to
	// its servers. It returns when the fault is over.
	process func(*trouble, *process)
	link    func(*trouble, *shard)
	server  func(*trouble, *shard)
	// harmless: commands are still answered, so that a free lock must be
	// granted in time.
	harmless bool
	doubles  bool // commands arrive twice, and the second answer counts: a release may find that it was applied
	redis    bool // it needs a Redis of the run's own
}

// happensOn reports whether the fault is for one of these topologies.
func (f *Fault) happensOn(some ...Topology) bool {
	return f.on == nil || slices.ContainsFunc(some, func(t Topology) bool { return slices.Contains(f.on, t) })
}

// loss is the data that a fault loses by design.
type loss uint8

const (
	lossNone        loss = iota
	lossUnconfirmed      // what not all replicas have confirmed
	lossSome             // some locks
	lossAll              // all locks
)

// event is one occurrence of a fault, as the checker sees it.
type event struct {
	fault *Fault
	on    string // what it befell
	span
	loss loss
}

// trouble is one occurrence of a fault, as the function that makes it sees it.
type trouble struct {
	a    *arena
	ctx  context.Context // done when the fault should come to its end
	r    *rand.Rand
	loss loss // to be set by the function
}

func (t *trouble) between(least, most time.Duration) time.Duration {
	return least + time.Duration(t.r.Int64N(int64(most-least)+1))
}

func (t *trouble) sleep(least, most time.Duration) { bound.Sleep(t.ctx, nil, t.between(least, most)) }

// Faults lists what the nemesis can do to processes, to connections, and to Redis.
func Faults() []Fault {
	masters, replicated, redis := []Topology{Single, Quorum}, []Topology{Sentinel, Cluster}, Topologies()
	return []Fault{
		{Name: "freeze", Doc: "a process stands still (SIGSTOP) for half a TTL to three", process: freeze},
		{Name: "kill", Doc: "a process is killed (kill -9), and another one started", process: kill},

		{Name: "restart", Doc: "a server is killed and started with its data", on: masters, server: restart, redis: true},
		{Name: "lose-data", Doc: "a server is killed and started empty", on: masters, server: loseData, redis: true},
		{Name: "flush", Doc: "FLUSHALL", on: []Topology{Single}, server: flush},
		{Name: "pause", Doc: "a server stands still (SIGSTOP) for up to two seconds", on: redis, server: pause, redis: true},
		{Name: "clock", Doc: "a server's clock is set ahead by up to three seconds, and back again", on: masters, server: clockJump, redis: true},
		{Name: "failover", Doc: "a replica becomes the master in an orderly way", on: replicated, server: failover},
		{Name: "kill-master", Doc: "a master is killed and its replica takes over", on: replicated, server: killMaster},
		{Name: "kill-ahead", Doc: "the same when the replica has not heard of its master for up to a TTL", on: replicated, server: killAhead},
		{Name: "move-slot", Doc: "the slot of a key moves to another shard", on: []Topology{Cluster}, server: moveSlot},

		{Name: "cut", Doc: "all connections are reset", link: cut},
		{Name: "refuse", Doc: "connections are cut and refused for up to a TTL", link: refuse},
		{Name: "black-hole", Doc: "a link goes silent for up to two TTLs", link: blackHole},
		{Name: "lose-messages", Doc: "the links of subscriptions go silent for up to two TTLs", on: redis, link: loseMessages, harmless: true},
		{Name: "lose-reply", Doc: "commands are applied, their replies lost, connections closed", on: redis, link: some(loseReply, 1)},
		{Name: "hang-reply", Doc: "commands are applied, their replies never come", on: redis, link: some(hangReply, 1)},
		{Name: "duplicate", Doc: "commands arrive twice", on: redis, link: some(duplicate, 1), harmless: true, doubles: true},
		{Name: "delay", Doc: "commands arrive late, even after their sender has given up", on: redis, link: some(delay, len(delays))},
		{Name: "late-reply", Doc: "replies come late", on: redis, link: some(lateReply, len(delays))},
	}
}

func freeze(t *trouble, p *process) {
	p.freeze()
	t.sleep(t.a.maxTTL/2, 3*t.a.maxTTL)
	p.thaw()
}

func kill(t *trouble, p *process) {
	p.kill()
	t.a.start(p.spec.Process)
}

// each runs f for each link of a shard.
func (s *shard) each(f func(*link)) {
	for _, n := range s.nodes {
		f(n.link)
	}
}

func cut(_ *trouble, s *shard) { s.each(func(l *link) { l.Reset() }) }

func refuse(t *trouble, s *shard) {
	s.each(func(l *link) { l.Refuse(true) })
	t.sleep(0, t.a.maxTTL)
	s.each(func(l *link) { l.Refuse(false) })
}

func blackHole(t *trouble, s *shard) {
	s.each(func(l *link) { l.Blackhole(true) })
	t.sleep(0, 2*t.a.maxTTL)
	s.each(func(l *link) { l.Blackhole(false) })
}

func loseMessages(t *trouble, s *shard) {
	s.each(func(l *link) { l.messages.Blackhole(true) })
	t.sleep(0, 2*t.a.maxTTL)
	s.each(func(l *link) {
		l.messages.Cut() // what was sent meanwhile is lost, not late
		l.messages.Blackhole(false)
	})
}

// some has one of n things happen to some of the commands, for a while.
func some(first, n int) func(*trouble, *shard) {
	return func(t *trouble, s *shard) {
		what, often := first+t.r.IntN(n), 20+t.r.Int32N(400)
		s.each(func(l *link) { l.chances[what].Store(often) })
		t.sleep(200*time.Millisecond, 1500*time.Millisecond)
		s.each(func(l *link) { l.chances[what].Store(0) })
	}
}

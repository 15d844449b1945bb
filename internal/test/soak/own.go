package soak

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/distlock/locker/conformance/faultproxy"
)

// Own is a topology whose servers the program starts: those of a store that this module does
// not know. Besides its own faults it has those of processes, and of connections the ones
// that need not understand what is sent.
type Own struct {
	Name   Topology
	TTLs   []time.Duration // of leases, unless Config has some
	Linger time.Duration   // how long the store may keep a lock after its TTL
	Faults []Fault         // Name and Doc
	Start  func(context.Context) (Servers, error)
}

// Servers are those of a round. They lose no locks.
type Servers interface {
	// Addrs returns a host:port or the path of a unix socket for each server.
	Addrs() []string
	// Strike makes one of Own.Faults. The fault should come to its end when ctx is done. Strike
	// returns when the servers work again.
	Strike(ctx context.Context, r *rand.Rand, fault string) error
	Close()
}

// faults returns the faults of Redis and of the program's own servers.
func (c Config) faults() []Fault {
	all := Faults()
	if c.Own == nil {
		return all
	}
	for _, f := range c.Own.Faults {
		f.on = []Topology{c.Own.Name}
		f.server = func(t *trouble, _ *shard) {
			if err := t.a.deployment.own.Strike(t.ctx, t.r, f.Name); err != nil && t.a.stage.ctx.Err() == nil {
				t.a.stage.Fatal(err)
			}
		}
		all = append(all, f)
	}
	return all
}

func (c Config) faultNames() (names []string) {
	for _, f := range c.faults() {
		names = append(names, f.Name)
	}
	return names
}

// topologies returns the topologies of Redis and the program's own one.
func (c Config) topologies() []Topology {
	if c.Own == nil {
		return Topologies()
	}
	return append(Topologies(), c.Own.Name)
}

func (c Config) isOwn(t Topology) bool { return c.Own != nil && c.Own.Name == t }

// linger is how long a lock on t may outlive its TTL.
func (c Config) linger(t Topology) time.Duration {
	if c.isOwn(t) {
		return c.Own.Linger
	}
	return 0
}

// deployOwn starts the program's servers. The first shard has all of them, each of the others
// has one, so that a fault of links is one of all links or of one.
func (d *deployment) deployOwn(st *stage, own *Own) {
	var err error
	if d.own, err = own.Start(st.ctx); err != nil {
		st.Fatal(err)
	}
	st.Cleanup(d.own.Close)
	all := &shard{}
	d.shards = []*shard{all}
	for i, addr := range d.own.Addrs() {
		p, err := faultproxy.NewPlain(addr)
		if err != nil {
			st.Fatal(err)
		}
		st.Cleanup(func() { _ = p.Close() })
		n := &node{addr: addr, link: &link{Proxy: p}}
		all.nodes = append(all.nodes, n)
		d.shards = append(d.shards, &shard{i + 1, []*node{n}})
	}
}

package soak

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/distlock/locker/internal/bound"
)

// nemesis makes trouble in one arena.
type nemesis struct {
	a                             *arena
	onProcess, onLinks, onServers []*Fault
}

func newNemesis(a *arena) *nemesis {
	n := &nemesis{a: a}
	all := a.cfg.faults()
	for i := range all {
		f := &all[i]
		switch {
		case !slices.Contains(a.cfg.Faults, f.Name), !f.happensOn(a.topology), f.redis && a.cfg.Server != "":
		case f.process != nil:
			n.onProcess = append(n.onProcess, f)
		case f.link != nil:
			n.onLinks = append(n.onLinks, f)
		default:
			n.onServers = append(n.onServers, f)
		}
	}
	return n
}

// run makes storms and calms until ctx is done. When it returns, everything works.
func (n *nemesis) run(ctx context.Context) {
	for i := uint64(0); ctx.Err() == nil; i++ {
		r := rand.New(rand.NewPCG(n.a.seed, i))
		n.storm(ctx, r)
		// A process that is killed while nothing else is wrong: what it held must be
		// granted to others in time.
		kill := slices.IndexFunc(n.onProcess, func(f *Fault) bool { return f.Name == "kill" })
		if i%2 == 0 && ctx.Err() == nil && kill >= 0 {
			n.strikeProcess(&trouble{a: n.a, ctx: ctx, r: r}, n.onProcess[kill])
		}
		bound.Sleep(ctx, nil, n.a.cfg.Calm)
	}
}

// storm makes faults of each sort one after the other, the sorts side by side.
func (n *nemesis) storm(ctx context.Context, r *rand.Rand) {
	ctx, cancel := context.WithTimeout(ctx, n.a.cfg.Storm)
	defer cancel()
	// A minority of a quorum is in trouble at a time: one server, and the link to another one.
	shards := n.a.deployment.shards
	order := r.Perm(len(shards))
	on := func(i int) func(*trouble, *Fault) {
		return func(t *trouble, f *Fault) {
			s := shards[t.r.IntN(len(shards))]
			if n.a.topology == Quorum {
				s = shards[order[i]]
			}
			n.strikeShard(t, f, s)
		}
	}
	var storm sync.WaitGroup
	for _, sort := range []struct {
		faults []*Fault
		pause  time.Duration // between two of them, at most
		strike func(*trouble, *Fault)
	}{
		{n.onProcess, 3 * time.Second, n.strikeProcess},
		{n.onLinks, 600 * time.Millisecond, on(0)},
		{n.onServers, 1500 * time.Millisecond, on(1)},
	} {
		r := rand.New(rand.NewPCG(r.Uint64(), 0))
		storm.Go(func() {
			for len(sort.faults) > 0 && ctx.Err() == nil {
				t := &trouble{a: n.a, ctx: ctx, r: r}
				if t.sleep(sort.pause/10, sort.pause); ctx.Err() == nil {
					sort.strike(t, sort.faults[r.IntN(len(sort.faults))])
				}
			}
		})
	}
	storm.Wait()
}

func (n *nemesis) strikeProcess(t *trouble, f *Fault) {
	p := n.a.worker(t.r.IntN(n.a.cfg.Processes))
	e := event{fault: f, on: p.name, span: span{from: now()}}
	f.process(t, p)
	n.a.note(e)
}

func (n *nemesis) strikeShard(t *trouble, f *Fault, s *shard) {
	e := event{fault: f, on: fmt.Sprint("shard ", s.index), span: span{from: now()}}
	if f.link != nil {
		f.link(t, s)
	} else {
		f.server(t, s)
	}
	e.loss = t.loss
	n.a.note(e)
}

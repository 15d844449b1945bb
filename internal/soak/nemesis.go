package soak

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// event is one occurrence of a fault, as the checker sees it.
type event struct {
	fault *Fault
	on    string // what it befell
	span
	loses bool    // locks are gone
	key   *uint16 // it befell; nil: all
}

func (e event) String() string {
	if e.key != nil {
		return fmt.Sprintf("%s on %s at %s", e.fault.Name, e.on, keyName(*e.key))
	}
	return fmt.Sprintf("%s on %s", e.fault.Name, e.on)
}

// nemesis makes trouble for one strategy.
type nemesis struct {
	a                  *arena
	seed               uint64
	onProcess, onNodes []*Fault

	mu   sync.Mutex
	busy map[*node]bool
}

func newNemesis(a *arena) *nemesis {
	n := &nemesis{a: a, seed: a.seed, busy: make(map[*node]bool)}
	for _, name := range a.cfg.Faults {
		i := slices.IndexFunc(Faults(), func(f Fault) bool { return f.Name == name })
		f := &Faults()[i]
		switch {
		case f.onProcess != nil:
			n.onProcess = append(n.onProcess, f)
		case f.redis && a.strategy.Server != "", f.single && len(a.nodes) > 1:
		default:
			n.onNodes = append(n.onNodes, f)
		}
	}
	return n
}

// run makes storms and calms until ctx is done. At its end everything works.
func (n *nemesis) run(ctx context.Context) {
	for i := 0; ctx.Err() == nil; i++ {
		if n.a.cfg.Storm > 0 {
			n.storm(ctx, rand.New(rand.NewPCG(n.seed, uint64(i))))
		}
		if i%2 == 0 && ctx.Err() == nil {
			n.killInTheCalm(rand.New(rand.NewPCG(n.seed, ^uint64(i))))
		}
		sleep(ctx, n.a.cfg.Calm)
	}
}

// killInTheCalm kills a process while nothing else is wrong: what it held has to be
// taken in time.
func (n *nemesis) killInTheCalm(r *rand.Rand) {
	if i := slices.IndexFunc(n.onProcess, func(f *Fault) bool { return f.Name == "kill" }); i >= 0 {
		n.strikeProcess(&trouble{a: n.a, ctx: context.Background(), r: r}, n.onProcess[i])
	}
}

func (n *nemesis) storm(ctx context.Context, r *rand.Rand) {
	ctx, cancel := context.WithTimeout(ctx, n.a.cfg.Storm)
	defer cancel()
	var wg sync.WaitGroup
	again := func(faults []*Fault, pause time.Duration, strike func(*trouble, *Fault)) {
		if len(faults) == 0 {
			return
		}
		t := &trouble{a: n.a, ctx: ctx, r: rand.New(rand.NewPCG(r.Uint64(), 0))}
		wg.Go(func() {
			for ctx.Err() == nil {
				if t.sleep(t.between(pause/10, pause)); ctx.Err() == nil {
					strike(t, faults[t.r.IntN(len(faults))])
				}
			}
		})
	}
	again(n.onProcess, 3*time.Second, n.strikeProcess)
	for range max(1, (len(n.a.nodes)-1)/2) { // a minority at a time
		again(n.onNodes, 600*time.Millisecond, n.strikeNode)
	}
	wg.Wait()
}

func (n *nemesis) strikeProcess(t *trouble, f *Fault) {
	p := n.a.worker(t.r.IntN(n.a.cfg.Processes))
	e := event{fault: f, on: p.name, span: span{from: now()}}
	f.onProcess(t, p)
	n.a.tell(e)
}

func (n *nemesis) strikeNode(t *trouble, f *Fault) {
	target := n.take(t.r)
	defer n.give(target)
	e := event{fault: f, on: target.name, span: span{from: now()}, loses: f.loses && len(n.a.nodes) == 1}
	t.key = nil
	f.onNode(t, target)
	if e.key = t.key; e.key == nil && f.plants {
		return // there was no free key
	}
	n.a.tell(e)
}

// take picks a node on which nothing is wrong; there is one, since trouble is only
// made for a minority.
func (n *nemesis) take(r *rand.Rand) *node {
	n.mu.Lock()
	defer n.mu.Unlock()
	for {
		if target := n.a.nodes[r.IntN(len(n.a.nodes))]; !n.busy[target] {
			n.busy[target] = true
			return target
		}
	}
}

func (n *nemesis) give(target *node) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.busy, target)
}

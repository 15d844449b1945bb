package soak

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/distlock/locker/driver"
)

// arena is one topology for a round: its servers, its processes, and what befell them.
type arena struct {
	cfg        Config
	topology   Topology
	strategies []Strategy
	seed       uint64
	dir        string
	stage      *stage
	deployment *deployment
	spec       workerSpec // of its workers
	maxTTL     time.Duration

	mu      sync.Mutex
	workers []*process // those that run, by index
	all     []*process // and those that have ended
	events  []event
	crashes []string
	left    []leftPermits
}

func (r *round) newArena(t Topology, resource string) *arena {
	cfg, st := r.cfg, r.stage
	a := &arena{
		cfg: cfg, topology: t, strategies: cfg.strategiesOn(t), maxTTL: slices.Max(cfg.ttls(t)),
		seed: r.seed + uint64(slices.Index(cfg.topologies(), t))<<48, dir: r.dir, stage: st,
		deployment: deploy(st, cfg, t), workers: make([]*process, cfg.Processes),
	}
	a.spec = workerSpec{
		Arena: string(t), Route: a.deployment.route(), Resource: resource,
		Callers: cfg.Callers, Keys: cfg.Keys, TTLs: cfg.ttls(t),
	}
	for _, s := range a.strategies {
		a.spec.Strategies = append(a.spec.Strategies, s.Name)
	}
	st.Cleanup(func() {
		for _, p := range a.all {
			p.kill()
		}
	})
	return a
}

// start starts the next process with this index.
func (a *arena) start(index int) {
	a.mu.Lock()
	n := len(a.all)
	a.mu.Unlock()
	spec := a.spec
	spec.Process, spec.Seed = index, a.seed+uint64(n)<<32
	spec.Log = filepath.Join(a.dir, fmt.Sprintf("%s.p%d.log", a.topology, n))
	p, err := startProcess(fmt.Sprint("p", n), spec)
	if err != nil {
		a.stage.Fatal(err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.workers[index] = p
	a.all = append(a.all, p)
}

func (a *arena) worker(index int) *process {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.workers[index]
}

// note writes an event that is over into the log of faults.
func (a *arena) note(e event) {
	e.to = now()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.events = append(a.events, e)
}

// progress is how many operations the processes have told of, and how many faults there were.
func (a *arena) progress() (operations, faults int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, p := range a.all {
		operations += int(p.operations.Load())
	}
	return operations, len(a.events)
}

// run plays a round: until ctx is done there is work and trouble, then every caller
// finishes.
func (a *arena) run(ctx context.Context) {
	for i := range a.cfg.Processes {
		a.start(i)
	}
	newNemesis(a).run(ctx)
	if a.stage.ctx.Err() != nil {
		return // the user has interrupted the run, or a server is broken
	}
	for _, p := range a.all {
		p.finish()
	}
	// An attempt that no server answers, and an Unlock that is tried three times.
	end := time.Now().Add(10*time.Second + 3*a.maxTTL + 3*unlockWithin + a.cfg.Slack)
	for _, p := range a.all {
		if problem := p.await(time.Until(end)); problem != "" && p.killed == 0 {
			a.crashes = append(a.crashes, problem)
		}
	}
	a.checkFree(time.Now().Add(a.maxTTL + driver.BidTime + a.cfg.Slack))
}

// check checks what the processes have logged.
func (a *arena) check(report *Report, began instant) error {
	again := fmt.Sprintf("-seed=%d %s -topologies=%s -faults=%s", a.seed&(1<<48-1), a.cfg.again(), a.topology, strings.Join(a.cfg.Faults, ","))
	for i, s := range a.strategies {
		h := newHistory(a, s)
		for _, p := range a.all {
			if err := h.readBreaks(p, uint8(i)); err != nil {
				return err
			}
		}
		for _, p := range a.all {
			if err := h.read(p, uint8(i)); err != nil {
				return err
			}
		}
		h.check()
		for _, l := range a.left {
			if l.strategy == i {
				h.leaked(l)
			}
		}
		report.add(a.topology, s.Name, h)
		for _, v := range h.violations {
			v.Timeline, v.Again = a.timeline(uint8(i), v, began), again
			v.Text = fmt.Sprintf("%s on %s, %s: %s", s.Name, a.topology, s.key(int(v.key)), v.Text)
			report.Violations = append(report.Violations, v)
		}
	}
	for _, text := range a.crashes {
		report.Found[Crash]++
		report.Violations = append(report.Violations, Violation{Kind: Crash, Text: fmt.Sprintf("%s: %s", a.topology, text), Again: again})
	}
	for _, e := range a.events {
		report.Faults[string(a.topology)+"/"+e.fault.Name]++
	}
	return nil
}

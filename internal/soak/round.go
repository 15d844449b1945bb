package soak

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// round is a part of a run, with servers and processes of its own.
type round struct {
	cfg    Config
	n      int
	seed   uint64
	length time.Duration
	dir    string
	stage  *stage
}

func newRound(ctx context.Context, cfg Config, n int, length time.Duration) *round {
	return &round{
		cfg: cfg, n: n, seed: cfg.Seed + uint64(n), length: length,
		dir: filepath.Join(cfg.Dir, fmt.Sprintf("round%d", n)), stage: newStage(ctx),
	}
}

// run plays the round and adds what came of it to report.
func (r *round) run(report *Report) error {
	if err := os.MkdirAll(r.dir, 0o700); err != nil {
		return err
	}
	began := now()
	var arenas []*arena
	err := r.stage.run(func() {
		for i, s := range r.cfg.Strategies {
			arenas = append(arenas, newArena(r.cfg, s, r.seed+uint64(i)<<48, r.dir, r.stage))
		}
		ctx, cancel := context.WithTimeout(r.stage.ctx, r.length)
		defer cancel()
		var wg sync.WaitGroup
		for _, a := range arenas {
			wg.Go(func() { a.run(ctx) })
		}
		wg.Wait()
	})
	if err != nil {
		return err
	}
	report.Rounds++
	report.Took += now().since(began)
	found := 0
	for i, a := range arenas {
		h, err := a.check(began)
		if err != nil {
			return err
		}
		report.Stats[i].add(h.stats)
		for j, v := range h.violations {
			report.Violations = append(report.Violations, r.describe(a, h, v, j))
		}
		found += len(h.violations)
	}
	if found > 0 {
		return nil // the logs are evidence
	}
	return os.RemoveAll(r.dir)
}

// check checks what the arena's processes have logged.
func (a *arena) check(began instant) (*history, error) {
	h := newHistory(a.cfg, a.strategy, a.events, began)
	h.stats.Processes, h.stats.Stale = len(a.all), a.stale
	for _, p := range a.all {
		if err := h.read(p); err != nil {
			return nil, err
		}
	}
	h.check()
	for _, v := range a.violations {
		h.stats.Found[v.Kind]++
		h.violations = append(h.violations, v)
	}
	return h, nil
}

// describe adds to a violation what helps to understand it.
func (r *round) describe(a *arena, h *history, v Violation, n int) Violation {
	v.Strategy, v.Seed, v.Again = a.strategy.Name, r.seed, r.cfg.again(r.n, r.length)
	if v.Key != "" {
		v.Timeline = a.timeline(h, v)
	}
	if v.picture != nil {
		path := filepath.Join(r.dir, fmt.Sprintf("%s-%s-%d.html", a.strategy.Name, strings.ReplaceAll(string(v.Kind), " ", "-"), n))
		if err := v.picture(path); err == nil {
			v.Picture = path
		}
		v.picture = nil
	}
	return v
}

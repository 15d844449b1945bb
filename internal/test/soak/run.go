package soak

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/distlock/locker/internal/bound"
	"github.com/redis/go-redis/v9/logging"
)

// Run soaks the strategies until the time or the number of operations is reached, a
// round has found violations, or ctx is done; a round that was begun is checked all the
// same. The error says that the run itself could not go on; what was found is in the
// Report, which is never nil.
func Run(ctx context.Context, cfg Config) (*Report, error) {
	cfg, err := cfg.withDefaults()
	report := &Report{Seed: cfg.Seed, Flags: cfg.again(), Dir: cfg.Dir, Faults: map[string]int{}, Found: map[Kind]int{}, began: time.Now()}
	if err != nil {
		return report, err
	}
	logging.Disable() // go-redis tells of each Sentinel
	for n := 0; ; n++ {
		left := cfg.Duration - time.Since(report.began)
		enough := cfg.Operations > 0 && report.Operations() >= cfg.Operations
		if n > 0 && (left < time.Second || enough || ctx.Err() != nil || len(report.Violations) > 0) {
			break
		}
		r := &round{
			cfg: cfg, n: n, seed: cfg.Seed + uint64(n), dir: filepath.Join(cfg.Dir, fmt.Sprintf("round%d", n)),
			stage: newStage(ctx), report: report,
		}
		if err := r.run(ctx, min(left, roundLength)); err != nil {
			return report, fmt.Errorf("soak: round %d, seed %d: %w", n, r.seed, err)
		}
	}
	if len(report.Violations) == 0 {
		_ = os.Remove(cfg.Dir) // it stays if the caller keeps other files there
	}
	return report, nil
}

// round is a part of a run, with servers and processes of its own.
type round struct {
	cfg    Config
	n      int
	seed   uint64
	dir    string
	stage  *stage
	report *Report
	arenas []*arena
}

// run plays the round and adds what was found to the report.
func (r *round) run(ctx context.Context, length time.Duration) error {
	if err := os.MkdirAll(r.dir, 0o700); err != nil {
		return err
	}
	began := now()
	// An interrupt in a terminal ends the servers as well: then their errors mean nothing.
	if err := r.stage.run(func() { r.play(length) }); err != nil && ctx.Err() == nil {
		return err
	}
	r.report.Rounds++
	for _, a := range r.arenas {
		if err := a.check(r.report, began); err != nil {
			return err
		}
	}
	if len(r.report.Violations) > 0 {
		return nil // the logs are evidence
	}
	return os.RemoveAll(r.dir)
}

// play runs all arenas at the same time.
func (r *round) play(length time.Duration) {
	resource := newResource(r.stage)
	for _, t := range r.cfg.Topologies {
		if len(r.cfg.strategiesOn(t)) > 0 {
			r.arenas = append(r.arenas, r.newArena(t, resource))
		}
	}
	ctx, cancel := context.WithTimeout(r.stage.ctx, length)
	defer cancel()
	go r.watch(ctx, cancel)
	var arenas sync.WaitGroup
	for _, a := range r.arenas {
		arenas.Go(func() { a.run(ctx) })
	}
	arenas.Wait()
}

// watch reports progress until ctx is done, and ends the round when it has done enough
// operations.
func (r *round) watch(ctx context.Context, enough func()) {
	for before := r.report.Operations(); ctx.Err() == nil; bound.Sleep(ctx, nil, 500*time.Millisecond) {
		operations, faults := before, 0
		for _, a := range r.arenas {
			o, f := a.progress()
			operations, faults = operations+o, faults+f
		}
		r.cfg.Progress(fmt.Sprintf("%v: round %d, %d operations, %d faults in it", time.Since(r.report.began).Round(time.Second), r.n+1, operations, faults))
		if r.cfg.Operations > 0 && operations >= r.cfg.Operations {
			enough()
		}
	}
}

package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/examples/internal/cli"
	"github.com/distlock/locker/strategy"
)

// way is how an instance keeps the others from running the job of a tick.
type way struct {
	name string
	once bool // the job is to run exactly once
	run  func(ctx context.Context, l locker.Locker, tick string, job func(context.Context) error) error
}

var ways = []way{
	{"no lock", false, func(ctx context.Context, _ locker.Locker, _ string, job func(context.Context) error) error {
		return job(ctx)
	}},
	{"unlocked at once", false, func(ctx context.Context, l locker.Locker, _ string, job func(context.Context) error) error {
		return locker.Do(ctx, l, "report", job, locker.WithWait(0))
	}},
	{"a key for a tick", true, runOnce},
}

// maxLate is how late an instance may be. It may be paused for long, too.
const maxLate = time.Minute

// runOnce runs the job of a tick unless that was done or is being done elsewhere. There is
// no Unlock: the TTL frees the key, when no instance can still come with it. An instance
// that crashes leaves its tick undone.
func runOnce(ctx context.Context, l locker.Locker, tick string, job func(context.Context) error) error {
	lease, err := l.TryLock(ctx, "report/"+tick, locker.WithTTL(maxLate), locker.WithoutRenewal())
	if err != nil {
		return err
	}
	if err := job(lease.Context(ctx)); err != nil {
		// So that another instance, which is late, may do it.
		return errors.Join(err, lease.Unlock(ctx))
	}
	return lease.LetExpire() // which keeps the key; without it the end of the TTL would count as a loss
}

// board is where the job leaves its traces: how often each tick was done.
type board struct {
	mu   sync.Mutex
	done []int
}

func (b *board) job(tick int) func(context.Context) error {
	return func(context.Context) error {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.done[tick]++
		return nil
	}
}

// schedule has all instances run the job in one way, and counts its runs at each tick.
func schedule(ctx context.Context, cfg config, w way) ([]int, error) {
	b := &board{done: make([]int, cfg.ticks)}
	first := time.Now().Add(cfg.every)
	errs := make([]error, cfg.instances)
	var wg sync.WaitGroup
	for i := range cfg.instances {
		// The last clock is late by half of the time between two ticks.
		late := cfg.every / 2 * time.Duration(i) / time.Duration(cfg.instances)
		wg.Go(func() { errs[i] = instance(ctx, cfg, w, b, first, late) })
	}
	wg.Wait()
	return b.done, errors.Join(errs...)
}

// instance stands for a process.
func instance(ctx context.Context, cfg config, w way, b *board, first time.Time, late time.Duration) error {
	l, release, err := strategy.OpenURL(ctx, cfg.url)
	if err != nil {
		return err
	}
	defer release()
	for n := range cfg.ticks {
		due := first.Add(time.Duration(n) * cfg.every) // what every instance's clock will show
		if err := cli.Sleep(ctx, time.Until(due.Add(late))); err != nil {
			return err
		}
		err := w.run(ctx, l, due.UTC().Format(time.RFC3339Nano), b.job(n))
		if err != nil && !errors.Is(err, locker.ErrNotAcquired) {
			return fmt.Errorf("instance, tick %d: %w", n, err)
		}
	}
	return nil
}

package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/internal/bound"
	"github.com/redis/go-redis/v9"
)

// Crowd asks for Lockers that wait for one key. Each has connections of its own, as a process has.
type Crowd struct {
	Waiters  int
	Hold     time.Duration // of a section
	Duration time.Duration
}

// CrowdResult has the cost of the Lockers.
type CrowdResult struct {
	HandOvers            float64
	RedisCPU, CPU        float64 // seconds, for a hand-over
	Commands             float64 // for a hand-over
	Elapsed              float64
	Idle                 float64 // Redis CPU, seconds of a second for a waiter of a key that stays held
	Connections, Bytes   float64 // for a waiter
	Failed               int64
	Overlaps             int64
	IdleCommands         float64 // a second, for a waiter
	ClientBytes, Opening float64
}

// crowd is under way.
type crowd struct {
	lockers                             []*locker.Client
	handOvers, failed, inside, overlaps atomic.Int64
}

func workCrowd(ctx context.Context, job Job, cfg Crowd) (r CrowdResult, err error) {
	admin := dial(job.Addr)
	empty, err := infoOf(ctx, admin)
	if err != nil {
		return r, err
	}
	emptyHere, began := memory(), time.Now()
	c := &crowd{lockers: make([]*locker.Client, cfg.Waiters+1)}
	if err := c.open(ctx, job); err != nil {
		return r, err
	}
	r.Opening = time.Since(began).Seconds()
	first, err := c.lockers[0].Lock(ctx, "key")
	if err != nil {
		return r, err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var all sync.WaitGroup
	for _, l := range c.lockers[1:] {
		all.Go(func() { c.contend(ctx, l, cfg.Hold) })
	}
	// A waiter asks, subscribes and asks again: that is over by then.
	bound.Sleep(ctx, nil, 2*time.Second+time.Duration(cfg.Waiters)*2*time.Millisecond)
	waiting, err := infoOf(ctx, admin)
	if err != nil {
		return r, err
	}
	n := float64(cfg.Waiters)
	r.Connections = (waiting["connected_clients"] - empty["connected_clients"]) / n
	r.Bytes = (waiting["used_memory"] - empty["used_memory"]) / n
	r.ClientBytes = (memory() - emptyHere) / n
	bound.Sleep(ctx, nil, cfg.Duration)
	idle, err := infoOf(ctx, admin)
	if err != nil {
		return r, err
	}
	d := idle.minus(waiting)
	r.Idle, r.IdleCommands = d.cpu()/n/cfg.Duration.Seconds(), d["total_commands_processed"]/n/cfg.Duration.Seconds()
	if err := first.Unlock(ctx); err != nil {
		return r, err
	}
	err = c.measure(ctx, admin, cfg.Duration, &r)
	stop()
	all.Wait()
	return r, err
}

// open makes the Lockers. Each locks a key of its own once, so that it has its connections and scripts.
func (c *crowd) open(ctx context.Context, job Job) error {
	return each(len(c.lockers), 64, func(i int) (err error) {
		if c.lockers[i], err = strategies[job.Strategy](dial(job.Addr)); err != nil {
			return err
		}
		lease, err := c.lockers[i].Lock(ctx, fmt.Sprint("warm-up:", i))
		if err != nil {
			return err
		}
		return lease.Unlock(ctx)
	})
}

// contend locks the key again and again, until ctx ends.
func (c *crowd) contend(ctx context.Context, l *locker.Client, hold time.Duration) {
	for ctx.Err() == nil {
		lease, err := l.Lock(ctx, "key")
		if err == nil {
			c.handOvers.Add(1)
			if c.inside.Add(1) > 1 {
				c.overlaps.Add(1)
			}
			bound.Sleep(ctx, nil, hold)
			c.inside.Add(-1)
			err = lease.Unlock(context.WithoutCancel(ctx))
		}
		if err != nil && ctx.Err() == nil {
			c.failed.Add(1)
		}
	}
}

// measure measures hand-overs for a time, and for longer if there are few.
func (c *crowd) measure(ctx context.Context, admin *redis.Client, length time.Duration, r *CrowdResult) error {
	const enough, most = 20, 60 * time.Second
	began, beganCPU := time.Now(), cpu()
	before, err := infoOf(ctx, admin)
	if err != nil {
		return err
	}
	from := c.handOvers.Load()
	for bound.Sleep(ctx, nil, length) && c.handOvers.Load()-from < enough && time.Since(began) < most {
	}
	after, err := infoOf(ctx, admin)
	r.HandOvers = float64(c.handOvers.Load() - from)
	r.Elapsed = time.Since(began).Seconds()
	d := after.minus(before)
	r.RedisCPU, r.CPU, r.Commands = d.cpu()/r.HandOvers, (cpu()-beganCPU).Seconds()/r.HandOvers, d["total_commands_processed"]/r.HandOvers
	r.Failed, r.Overlaps = c.failed.Load(), c.overlaps.Load()
	return err
}

// pollers waiters of a strategy other than blpop are as many as two cores bear: each asks again and again, or after
// each release.
const pollers = 1000

func measureCrowd(ctx context.Context, cfg *config) (string, error) {
	var t table
	t.row("", "waiters", "Redis CPU, a hand-over", "commands, those in scripts too", "hand-overs", "in", "Redis CPU a second, a waiter of a held key",
		"connections, a waiter", "Redis memory, a waiter", "failed", "overlaps")
	for _, s := range cfg.only {
		for _, n := range cfg.waiters {
			if n > pollers && s != "blpop" {
				continue
			}
			r, err := inProcess[CrowdResult](ctx, "crowd", s, Crowd{n, time.Millisecond, cfg.duration})
			if err != nil {
				return "", err
			}
			progress("crowd: %s, %d waiters: %+v", s, n, r)
			t.row(s, n, seconds(r.RedisCPU), fmt.Sprintf("%.1f", r.Commands), count(r.HandOvers), seconds(r.Elapsed), seconds(r.Idle),
				fmt.Sprintf("%.2f", r.Connections), bytes(r.Bytes), r.Failed, r.Overlaps)
		}
	}
	return t.String(), nil
}

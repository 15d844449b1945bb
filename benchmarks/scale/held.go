package main

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/internal/bound"
	"github.com/redis/go-redis/v9"
)

// Held asks for locks that are held and renewed.
type Held struct {
	Locks int
	TTL   time.Duration
	Watch time.Duration // for so long
}

// HeldResult has the cost of the locks.
type HeldResult struct {
	Bytes, RedisBytes      float64 // for a lock
	CPU, RedisCPU          float64 // seconds, of a second
	Renewals, Batches      float64 // a second; batches are reads of the server
	BytesIn, BytesOut      float64 // of the server, for a renewal
	LateP99, LateMost      float64 // seconds
	Taking                 float64 // seconds
	Lost                   int
	Goroutines, Connection float64
}

// holder has the locks of a job.
type holder struct {
	rdb    *redis.Client
	locks  *locker.Client
	leases []*locker.Lease
}

// hold opens a Locker and takes the locks. before is called when connections are open and scripts known.
func hold(ctx context.Context, job Job, n int, ttl time.Duration, before func(*holder) error) (*holder, error) {
	h := &holder{rdb: dial(job.Addr), leases: make([]*locker.Lease, n)}
	var err error
	if h.locks, err = strategies[job.Strategy](h.rdb, locker.WithTTL(ttl)); err != nil {
		return nil, err
	}
	warm := func(i int) error {
		lease, err := h.locks.Lock(ctx, fmt.Sprint("warm-up:", i))
		if err != nil {
			return err
		}
		return lease.Unlock(ctx)
	}
	if err := each(1000, 256, warm); err != nil {
		return nil, err
	}
	if err := before(h); err != nil {
		return nil, err
	}
	return h, h.take(ctx)
}

func (h *holder) take(ctx context.Context) error {
	return each(len(h.leases), 256, func(i int) (err error) {
		h.leases[i], err = h.locks.Lock(ctx, fmt.Sprint("held:", i))
		return err
	})
}

func (h *holder) lost() (n int) {
	for _, l := range h.leases {
		if l.Err() != nil {
			n++
		}
	}
	return n
}

func workHeld(ctx context.Context, job Job, cfg Held) (r HeldResult, err error) {
	var empty float64
	var emptyRedis info
	h, err := hold(ctx, job, cfg.Locks, cfg.TTL, func(h *holder) (err error) {
		empty = memory()
		emptyRedis, err = infoOf(ctx, h.rdb)
		r.Taking = -time.Since(start).Seconds()
		return err
	})
	if err != nil {
		return r, err
	}
	r.Taking += time.Since(start).Seconds()
	n := float64(cfg.Locks)
	r.Bytes = (memory() - empty) / n
	full, err := infoOf(ctx, h.rdb)
	if err != nil {
		return r, err
	}
	r.RedisBytes = (full["used_memory"] - emptyRedis["used_memory"]) / n
	before, began := cpu(), time.Now()
	late := h.watch(ctx, cfg)
	took := time.Since(began).Seconds()
	after, err := infoOf(ctx, h.rdb)
	if err != nil {
		return r, err
	}
	d := after.minus(full)
	r.CPU, r.RedisCPU = (cpu()-before).Seconds()/took, d.cpu()/took
	r.Renewals, r.Batches = d["calls_evalsha"]/took, d["total_reads_processed"]/took
	r.BytesIn, r.BytesOut = d["total_net_input_bytes"]/d["calls_evalsha"], d["total_net_output_bytes"]/d["calls_evalsha"]
	r.LateP99, r.LateMost = quantile(late, 0.99), quantile(late, 1)
	r.Lost, r.Connection, r.Goroutines = h.lost(), after["connected_clients"]-1, float64(runtime.NumGoroutine())
	return r, nil
}

var start = time.Now()

// watch looks at up to 1,000 of the locks again and again, and returns by how much the latest renewal of each
// came later than an interval after the one before. (Most come early, to share round trips.)
func (h *holder) watch(ctx context.Context, cfg Held) []float64 {
	// A renewal is due when a lease has this much left: the validity, see docs/guarantees.md, less the interval.
	due := cfg.TTL - cfg.TTL/100 - 2*time.Millisecond - cfg.TTL/3
	step := max(1, len(h.leases)/1000)
	late := make([]float64, 0, 1001)
	for range (len(h.leases) + step - 1) / step {
		late = append(late, 0)
	}
	const look = 20 * time.Millisecond // how exact the figure is
	for end := time.Now().Add(cfg.Watch); time.Now().Before(end) && bound.Sleep(ctx, nil, look); {
		for i := range late {
			if l := (due - time.Until(h.leases[i*step].Deadline())).Seconds(); l > late[i] {
				late[i] = l
			}
		}
	}
	return late
}

func measureHeld(ctx context.Context, cfg *config) (string, error) {
	var t table
	t.row("", "locks", "client memory, a lock", "Redis memory, a lock", "client CPU, of a core", "Redis CPU, of a core",
		"renewals per second", "renewals per read", "late, p99", "latest", "lost")
	for _, s := range cfg.only {
		for _, n := range cfg.locks {
			r, err := inProcess[HeldResult](ctx, "held", s, Held{n, cfg.ttl, cfg.ttl + cfg.ttl/4})
			if err != nil {
				return "", err
			}
			progress("held: %s, %d locks, taken in %.1f s: %+v", s, n, r.Taking, r)
			here := "–"
			if n >= 10_000 { // below, what the runtime keeps for itself is more
				here = bytes(r.Bytes)
			}
			t.row(s, count(n), here, bytes(r.RedisBytes), percent(r.CPU), percent(r.RedisCPU),
				count(r.Renewals), count(r.Renewals/r.Batches), seconds(r.LateP99), seconds(r.LateMost), r.Lost)
		}
	}
	return t.String(), nil
}

func percent(v float64) string { return fmt.Sprintf("%.2g %%", 100*v) }

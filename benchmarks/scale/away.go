package main

import (
	"context"
	"sync"
	"syscall"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/internal/bound"
)

// Away asks for locks whose server does not answer for some time.
type Away struct {
	Locks int
	TTL   time.Duration
	Away  time.Duration
}

// AwayResult has what became of the locks, and the cost.
type AwayResult struct {
	Lost                   int
	Silent                 int     // lost, and their holders do not know a second after the deadline
	LateP99, LateMost      float64 // seconds from the deadline until a holder knew
	CPU, CPUAfter          float64 // seconds of this process, while the server was away, and then
	Calm                   float64 // seconds from its return until all are renewed, or locked again
	Taking                 float64 // seconds that it took to lock them at first
	RedisCPU, RedisTaking  float64 // of the server for Calm and Taking
	Commands, FirstCommand float64
}

func workAway(ctx context.Context, job Job, cfg Away) (r AwayResult, err error) {
	var empty info
	h, err := hold(ctx, job, cfg.Locks, cfg.TTL, func(h *holder) (err error) {
		r.Taking = -time.Since(start).Seconds()
		empty, err = infoOf(ctx, h.rdb)
		return err
	})
	if err != nil {
		return r, err
	}
	r.Taking += time.Since(start).Seconds()
	full, err := infoOf(ctx, h.rdb)
	if err != nil {
		return r, err
	}
	r.RedisTaking, r.FirstCommand = full.minus(empty).cpu(), full.minus(empty)["calls_evalsha"]
	lost := make([]<-chan struct{}, len(h.leases))
	for i, l := range h.leases {
		lost[i] = l.Lost()
	}
	ended := make(chan struct{})
	late := lateness(h.leases, lost, ended)
	bound.Sleep(ctx, nil, cfg.TTL/2) // so that renewals are under way all the time
	if err := syscall.Kill(job.PID, syscall.SIGSTOP); err != nil {
		return r, err
	}
	defer syscall.Kill(job.PID, syscall.SIGCONT) //nolint:errcheck // it has continued before, or it is dead
	before := cpu()
	bound.Sleep(ctx, nil, cfg.Away)
	r.CPU = (cpu() - before).Seconds()
	r.Silent = silent(h.leases, lost)
	returned := time.Now()
	before = cpu()
	if err := syscall.Kill(job.PID, syscall.SIGCONT); err != nil {
		return r, err
	}
	if cfg.Away > cfg.TTL {
		r.Lost = h.lost()
		err = h.take(ctx)
	} else {
		h.untilRenewed(ctx, returned.Add(cfg.TTL-cfg.TTL/100-4*time.Second))
		r.Lost = h.lost()
	}
	r.Calm, r.CPUAfter = time.Since(returned).Seconds(), (cpu() - before).Seconds()
	close(ended)
	lates := late()
	r.LateP99, r.LateMost = quantile(lates, 0.99), quantile(lates, 1)
	if err != nil {
		return r, err
	}
	after, err := infoOf(ctx, h.rdb)
	r.RedisCPU, r.Commands = after.minus(full).cpu(), after.minus(full)["calls_evalsha"]
	return r, err
}

// silent counts the leases whose deadline passed a second ago and whose holders do not know. It does not ask a
// lease whether it is lost: then the lease would look at the clock.
func silent(leases []*locker.Lease, lost []<-chan struct{}) (n int) {
	for i, l := range leases {
		select {
		case <-lost[i]:
		default:
			if time.Until(l.Deadline()) < -time.Second {
				n++
			}
		}
	}
	return n
}

// lateness waits for the loss of up to 10,000 of the leases until ended is closed. The function returned
// returns by how much each was later than its deadline, in seconds.
func lateness(leases []*locker.Lease, lost []<-chan struct{}, ended <-chan struct{}) func() []float64 {
	var wg sync.WaitGroup
	var mu sync.Mutex
	var late []float64
	for i := 0; i < len(leases); i += max(1, len(leases)/10_000) {
		l, c := leases[i], lost[i]
		wg.Go(func() {
			select {
			case <-c:
				by := -time.Until(l.Deadline()).Seconds()
				mu.Lock()
				defer mu.Unlock()
				late = append(late, by)
			case <-ended:
			}
		})
	}
	return func() []float64 {
		wg.Wait()
		return late
	}
}

// untilRenewed returns when each lease is lost, or was renewed so that it ends after a time.
func (h *holder) untilRenewed(ctx context.Context, end time.Time) {
	for i := 0; i < len(h.leases) && ctx.Err() == nil; {
		l := h.leases[i]
		if l.Err() != nil || l.Deadline().After(end) {
			i++
			continue
		}
		bound.Sleep(ctx, nil, 10*time.Millisecond) // it is looked at so often
	}
}

func measureAway(ctx context.Context, cfg *config) (string, error) {
	var t table
	t.row("", "locks", "server away for", "lost", "holders that do not know a second later", "know after the deadline, p99", "at most",
		"client CPU, away", "until calm", "client CPU, then", "Redis CPU, then", "commands", "to lock them at first", "Redis CPU, locking")
	for _, s := range cfg.only {
		for _, n := range cfg.storm {
			for _, away := range []time.Duration{cfg.ttl / 2, cfg.ttl + 5*time.Second} {
				r, err := inProcess[AwayResult](ctx, "away", s, Away{n, cfg.ttl, away})
				if err != nil {
					return "", err
				}
				progress("away: %s, %d locks, for %v: %+v", s, n, away, r)
				t.row(s, count(n), clock(away), count(r.Lost), r.Silent, seconds(r.LateP99), seconds(r.LateMost),
					seconds(r.CPU), seconds(r.Calm), seconds(r.CPUAfter), seconds(r.RedisCPU), count(r.Commands),
					seconds(r.Taking), seconds(r.RedisTaking))
			}
		}
	}
	return t.String(), nil
}

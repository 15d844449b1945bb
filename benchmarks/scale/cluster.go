package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/benchmarks/internal/rig"
	"github.com/distlock/locker/internal/bound"
	"github.com/distlock/locker/internal/test/redistest"
	"github.com/redis/go-redis/v9"
)

// A deployment is a server or a cluster, with a client for pairs and one for each node.
type deployment struct {
	client redis.UniversalClient
	nodes  []*redis.Client
}

// deploy starts a server, or a cluster of so many masters.
func deploy(s *rig.Stage, masters int) (deployment, *redistest.Cluster) {
	if masters == 1 {
		server := startServer(s)
		return deployment{server.Client(s), []*redis.Client{server.Client(s)}}, nil
	}
	c := redistest.StartCluster(s, masters, 0)
	d := deployment{client: c.Client(s)}
	for _, n := range c.Nodes() {
		d.nodes = append(d.nodes, n.Client(s))
	}
	return d, c
}

// cpu returns for how many seconds the servers have worked.
func (d deployment) cpu(ctx context.Context) (sum float64, err error) {
	for _, n := range d.nodes {
		i, err := infoOf(ctx, n)
		if err != nil {
			return 0, err
		}
		sum += i.cpu()
	}
	return sum, nil
}

// pairing is goroutines that lock and unlock keys of their own.
type pairing struct {
	all    sync.WaitGroup
	pairs  atomic.Int64
	mu     sync.Mutex
	failed []error
	stop   context.CancelFunc
}

func pair(ctx context.Context, l *locker.Client, goroutines int) *pairing {
	p := &pairing{}
	ctx, p.stop = context.WithCancel(ctx)
	for g := range goroutines {
		p.all.Go(func() {
			for key := fmt.Sprint("pair:", g); ctx.Err() == nil; {
				lease, err := l.Lock(ctx, key)
				if err == nil {
					err = lease.Unlock(context.WithoutCancel(ctx))
				}
				switch {
				case err == nil:
					p.pairs.Add(1)
				case ctx.Err() == nil:
					p.mu.Lock()
					p.failed = append(p.failed, err)
					p.mu.Unlock()
				}
			}
		})
	}
	return p
}

// end returns how many calls have failed, and the first.
func (p *pairing) end() (failed int, first error) {
	p.stop()
	p.all.Wait()
	if len(p.failed) > 0 {
		first = p.failed[0]
	}
	return len(p.failed), first
}

func measureCluster(ctx context.Context, cfg *config) (string, error) {
	var t table
	t.row("", "goroutines", "masters", "pairs/s", "÷ one server", "client CPU, a pair", "Redis CPU, a pair, of all nodes", "failed")
	for _, s := range cfg.only {
		for _, goroutines := range []int{256, 2000} {
			var one float64
			for _, masters := range []int{1, 3, 6} {
				r, err := pairsOn(ctx, cfg, s, masters, goroutines)
				if err != nil {
					return "", err
				}
				if masters == 1 {
					one = r.rate
				}
				t.row(s, goroutines, masters, count(r.rate), fmt.Sprintf("%.2f", r.rate/one), seconds(r.cpu), seconds(r.redis), r.failed)
				progress("cluster: %s, %d goroutines, %d masters: %+v", s, goroutines, masters, r)
			}
		}
	}
	moved, err := measureReshard(ctx, cfg)
	return t.String() + "\n" + moved, err
}

type pairsResult struct {
	rate, cpu, redis float64
	failed           int
}

func pairsOn(ctx context.Context, cfg *config, strategy string, masters, goroutines int) (r pairsResult, err error) {
	s := &rig.Stage{Ctx: ctx}
	defer s.End()
	d, _ := deploy(s, masters)
	l, err := strategies[strategy](d.client)
	if err != nil {
		return r, err
	}
	defer l.Close()
	p := pair(ctx, l, goroutines)
	bound.Sleep(ctx, nil, cfg.duration/2)
	redisBefore, err := d.cpu(ctx)
	if err != nil {
		return r, err
	}
	pairs, before, began := p.pairs.Load(), cpu(), time.Now()
	bound.Sleep(ctx, nil, cfg.duration)
	n := float64(p.pairs.Load() - pairs)
	r.rate, r.cpu = n/time.Since(began).Seconds(), (cpu()-before).Seconds()/n
	redisAfter, err := d.cpu(ctx)
	r.redis = (redisAfter - redisBefore) / n
	failed, first := p.end()
	if r.failed = failed; failed > 0 {
		progress("cluster: %d calls failed, the first: %v", failed, first)
	}
	return r, err
}

// measureReshard moves slots from one master to the next while locks are held, and others are locked and unlocked.
func measureReshard(ctx context.Context, cfg *config) (string, error) {
	var t table
	t.row("", "locks held", "goroutines that lock and unlock", "slots moved", "in", "pairs/s meanwhile", "failed", "lost")
	for _, strategy := range cfg.only {
		s := &rig.Stage{Ctx: ctx}
		row, err := reshard(ctx, s, strategy)
		s.End()
		if err != nil {
			return "", err
		}
		progress("cluster, a reshard: %s: %v", strategy, row)
		t.row(row...)
	}
	return t.String(), nil
}

func reshard(ctx context.Context, s *rig.Stage, strategy string) (row []any, err error) {
	const held, goroutines, slots, ttl = 5000, 200, 200, 6 * time.Second
	d, c := deploy(s, 3)
	l, err := strategies[strategy](d.client)
	if err != nil {
		return nil, err
	}
	defer l.Close()
	leases := make([]*locker.Lease, held)
	if err := each(held, 64, func(i int) (err error) {
		leases[i], err = l.Lock(ctx, fmt.Sprint("held:", i), locker.WithTTL(ttl))
		return err
	}); err != nil {
		return nil, err
	}
	p := pair(ctx, l, goroutines)
	bound.Sleep(ctx, nil, ttl/2)
	began, pairs := time.Now(), p.pairs.Load()
	for slot := range slots { // all are the first master's
		c.MoveSlot(s, slot, 1)
	}
	took := time.Since(began)
	rate := float64(p.pairs.Load()-pairs) / took.Seconds()
	bound.Sleep(ctx, nil, 2*ttl) // what was lost by the moves is known
	failed, first := p.end()
	if failed > 0 {
		progress("cluster, a reshard: %d calls failed, the first: %v", failed, first)
	}
	lost := 0
	for _, lease := range leases {
		if errors.Is(lease.Err(), locker.ErrLost) {
			lost++
		}
	}
	return []any{strategy, held, goroutines, slots, clock(took), count(rate), failed, lost}, nil
}

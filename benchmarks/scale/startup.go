package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/benchmarks/internal/rig"
	"github.com/distlock/locker/internal/test/redistest"
	"github.com/redis/go-redis/v9"
)

func measureStartup(ctx context.Context, cfg *config) (string, error) {
	redis.SetLogger(quiet{}) // what fails is counted
	var out []string
	for _, part := range []func(context.Context, *config) (table, error){firstGrant, program, flushed, failedOver} {
		t, err := part(ctx, cfg)
		if err != nil {
			return "", err
		}
		out = append(out, t.String())
	}
	return strings.Join(out, "\n"), nil
}

// turns measures each thing n times, one after the other, and returns the medians and nine tenths.
func turns(n int, things ...func() error) (medians, most []float64, err error) {
	took := make([][]float64, len(things))
	for range n {
		for i, thing := range things {
			began := time.Now()
			if err := thing(); err != nil {
				return nil, nil, err
			}
			took[i] = append(took[i], time.Since(began).Seconds())
		}
	}
	for _, t := range took {
		medians, most = append(medians, quantile(t, 0.5)), append(most, quantile(t, 0.9))
	}
	return medians, most, nil
}

// firstGrant is from no client at all to a grant, beside a SET by a new client.
func firstGrant(ctx context.Context, cfg *config) (table, error) {
	s := &rig.Stage{Ctx: ctx}
	defer s.End()
	server := startServer(s)
	admin := server.Client(s)
	things, names := []func() error{func() error {
		c := dial(server.Addr())
		defer c.Close()
		return c.SetNX(ctx, "floor", "x", time.Millisecond).Err()
	}}, []string{"a new client and SET NX PX"}
	for _, strategy := range cfg.only {
		names = append(names, strategy)
		things = append(things, func() error {
			c := dial(server.Addr())
			defer c.Close()
			l, err := strategies[strategy](c)
			if err != nil {
				return err
			}
			defer l.Close()
			lease, err := l.Lock(ctx, "first")
			if err != nil {
				return err
			}
			return lease.Unlock(ctx)
		})
	}
	var t table
	t.row("from nothing to a grant, its release, and Close", "median", "p90", "÷ SET", "commands", "connections")
	var costs []info
	for _, thing := range things {
		before, err := infoOf(ctx, admin)
		if err != nil {
			return nil, err
		}
		if err := thing(); err != nil {
			return nil, err
		}
		after, err := infoOf(ctx, admin)
		if err != nil {
			return nil, err
		}
		costs = append(costs, after.minus(before))
	}
	medians, most, err := turns(cfg.rounds, things...)
	for i, m := range medians {
		t.row(names[i], seconds(m), seconds(most[i]), fmt.Sprintf("%.2f", m/medians[0]),
			costs[i]["total_commands_processed"]-1, costs[i]["total_connections_received"]) // the INFO before
	}
	progress("startup: %v", t)
	return t, err
}

// program measures a process that runs another one under a lock.
func program(ctx context.Context, cfg *config) (table, error) {
	s := &rig.Stage{Ctx: ctx}
	defer s.End()
	server := startServer(s)
	dir, err := os.MkdirTemp("", "scale")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	exe := filepath.Join(dir, "locker")
	root, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "github.com/distlock/locker").Output()
	if err != nil {
		return nil, err
	}
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", exe, ".")
	build.Dir = filepath.Join(strings.TrimSpace(string(root)), "cmd", "locker")
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%w: %s", err, out)
	}
	runs := func(name string, args ...string) func() error {
		return func() error {
			out, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
			if err != nil {
				err = fmt.Errorf("%s: %w: %s", name, err, out)
			}
			return err
		}
	}
	things, names := []func() error{runs("flock", filepath.Join(dir, "lock"), "-c", "true"), runs(exe, "version")},
		[]string{"`flock -c true`", "`locker version`, which asks no server"}
	for _, strategy := range cfg.only {
		names = append(names, "`locker run -- true`, "+strategy)
		things = append(things, runs(exe, "run", "--url", strategy+"+"+server.URL(), "--key", "k", "--", "true"))
	}
	var t table
	t.row("a program under a lock", "median", "p90", "÷ flock")
	medians, most, err := turns(cfg.rounds, things...)
	for i, m := range medians {
		t.row(names[i], seconds(m), seconds(most[i]), fmt.Sprintf("%.2f", m/medians[0]))
	}
	progress("startup: %v", t)
	return t, err
}

// open opens Lockers with connections of their own, and each locks once.
func open(ctx context.Context, n int, strategy string, client func() *redis.Client) ([]*locker.Client, error) {
	all := make([]*locker.Client, n)
	return all, each(n, 64, func(i int) (err error) {
		if all[i], err = strategies[strategy](client()); err != nil {
			return err
		}
		return once(ctx, all[i], i)
	})
}

func once(ctx context.Context, l *locker.Client, i int) error {
	lease, err := l.Lock(ctx, fmt.Sprint("once:", i))
	if err != nil {
		return err
	}
	return lease.Unlock(ctx)
}

// allOnce lets all lock and unlock a key of their own at the same time. It returns how long the last one took, and
// how many failed.
func allOnce(ctx context.Context, all []*locker.Client) (took float64, failed int64) {
	began := time.Now()
	var n atomic.Int64
	_ = each(len(all), len(all), func(i int) error {
		if err := once(ctx, all[i], i); err != nil {
			progress("startup: %v", err)
			n.Add(1)
		}
		return nil
	})
	return time.Since(began).Seconds(), n.Load()
}

// flushed measures Lockers that find their scripts gone, all at once.
func flushed(ctx context.Context, cfg *config) (table, error) {
	return atOnce(ctx, cfg, " Lockers lock and unlock at once", func(s *rig.Stage, t *table, strategy string) (all []*locker.Client, err error) {
		server := startServer(s)
		admin := server.Client(s)
		if all, err = open(ctx, cfg.lockers, strategy, func() *redis.Client { return dial(server.Addr()) }); err != nil {
			return all, err
		}
		if err := t.cost(ctx, strategy+", scripts known", admin, all); err != nil {
			return all, err
		}
		if err := admin.ScriptFlush(ctx).Err(); err != nil {
			return all, err
		}
		return all, t.cost(ctx, strategy+", after SCRIPT FLUSH", admin, all)
	})
}

// failedOver measures Lockers whose master has died.
func failedOver(ctx context.Context, cfg *config) (table, error) {
	return atOnce(ctx, cfg, " Lockers after a failover by Sentinel", func(s *rig.Stage, t *table, strategy string) (all []*locker.Client, err error) {
		sentinel := redistest.StartSentinel(s, 1, 3)
		if all, err = open(ctx, cfg.lockers, strategy, func() *redis.Client { return redis.NewFailoverClient(sentinel.Options()) }); err != nil {
			return all, err
		}
		sentinel.KillMaster(s)
		master := sentinel.Master(s).Client(s)
		if err := t.cost(ctx, strategy+", at once", master, all); err != nil {
			return all, err
		}
		return all, t.cost(ctx, strategy+", once more", master, all)
	})
}

// atOnce makes a table to which measure adds the rows of each strategy. The Lockers that measure returns are closed.
func atOnce(ctx context.Context, cfg *config, about string, measure func(*rig.Stage, *table, string) ([]*locker.Client, error)) (table, error) {
	var t table
	t.row(count(cfg.lockers)+about, "took", "scripts sent", "commands, those in scripts too", "bytes to the server", "connections made", "failed")
	for _, strategy := range cfg.only {
		s := &rig.Stage{Ctx: ctx}
		all, err := measure(s, &t, strategy)
		for _, l := range all {
			if l != nil {
				_ = l.Close()
			}
		}
		s.End()
		if err != nil {
			return nil, err
		}
	}
	progress("startup: %v", t)
	return t, nil
}

// cost adds a row: what all of them cost a server that lock and unlock once.
func (t *table) cost(ctx context.Context, what string, server *redis.Client, all []*locker.Client) error {
	before, err := infoOf(ctx, server)
	if err != nil {
		return err
	}
	took, failed := allOnce(ctx, all)
	after, err := infoOf(ctx, server)
	d := after.minus(before)
	t.row(what, seconds(took), d["calls_eval"], count(d["total_commands_processed"]), bytes(d["total_net_input_bytes"]), d["total_connections_received"], failed)
	return err
}

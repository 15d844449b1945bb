// Command linebench measures postgres with and without a line of waiters.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/distlock/locker"
	"github.com/distlock/locker/internal/child"
	"github.com/distlock/locker/internal/servers"
	"github.com/distlock/locker/strategy/postgres"
)

type job struct {
	URL, Kind string
	Workers   int
	Hold      time.Duration
	Until     time.Time
	Pairs     bool // every worker has a key of its own
	Me        int
}

type section struct {
	Asked, In, Out int64
	Me             int
}

func open(ctx context.Context, url, kind string) (locker.Locker, error) {
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		return nil, err
	}
	if kind == "line" {
		return locker.New(postgres.NewLineDriver(pool))
	}
	return postgres.New(pool)
}

func work(p child.Parent, j job) error {
	ctx := context.Background()
	l, err := open(ctx, j.URL, j.Kind)
	if err != nil {
		return err
	}
	acquire := func(key string) (*locker.Lease, error) { return l.Lock(ctx, key) }
	if j.Kind == "permit" {
		acquire = func(key string) (*locker.Lease, error) {
			s, err := locker.NewSemaphore(l, key, 1)
			if err != nil {
				return nil, err
			}
			return s.Acquire(ctx)
		}
	}
	var mu sync.Mutex
	var all []section
	var wg sync.WaitGroup
	for w := range j.Workers {
		wg.Go(func() {
			key := "k"
			if j.Pairs {
				key = fmt.Sprintf("k-%d-%d", j.Me, w)
			}
			var own []section
			for time.Now().Before(j.Until) {
				s := section{Me: j.Me, Asked: time.Now().UnixNano()}
				lease, err := acquire(key)
				if err != nil {
					panic(err)
				}
				s.In = time.Now().UnixNano()
				if j.Hold > 0 {
					time.Sleep(j.Hold) // the section
				}
				s.Out = time.Now().UnixNano()
				if err := lease.Unlock(ctx); err != nil {
					panic(err)
				}
				own = append(own, s)
			}
			mu.Lock()
			defer mu.Unlock()
			all = append(all, own...)
		})
	}
	wg.Wait()
	_ = l.Close()
	return json.NewEncoder(p).Encode(all)
}

func main() {
	child.Serve("linebench", work)
	rounds := flag.Int("rounds", 3, "")
	d := flag.Duration("duration", 4*time.Second, "")
	fsync := flag.String("fsync", "off", "")
	only := flag.String("only", "", "words of the scenarios")
	kinds := flag.String("kinds", "now,line,permit", "")
	flag.Parse()
	if err := run(*rounds, *d, *fsync, *only, strings.Split(*kinds, ",")); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(rounds int, d time.Duration, fsync, only string, kinds []string) error {
	ctx := context.Background()
	s, err := servers.Postgres("fsync="+fsync, "shared_buffers=16MB", "shared_preload_libraries=pg_stat_statements")
	if err != nil {
		return err
	}
	defer s.Stop()
	url := fmt.Sprintf("postgres://app@/app?host=%s&sslmode=disable&pool_max_conns=4", s.Dir)
	err = s.Start(ctx, func(ctx context.Context) error {
		c, err := pgx.Connect(ctx, fmt.Sprintf("postgres://app@/app?host=%s&sslmode=disable", s.Dir))
		if err != nil {
			return err
		}
		return c.Close(ctx)
	})
	if err != nil {
		return err
	}
	type scenario struct {
		name               string
		processes, workers int
		hold               time.Duration
		pairs              bool
	}
	scenarios := []scenario{
		{"free pair, 1 goroutine", 1, 1, 0, true},
		{"free pairs, 8 goroutines", 1, 8, 0, true},
		{"turns: 8 processes of 1, 1 ms", 8, 1, time.Millisecond, false},
		{"procs: 4 processes of 4, 1 ms", 4, 4, time.Millisecond, false},
	}
	for _, sc := range scenarios {
		if !strings.Contains(sc.name, only) {
			continue
		}
		fmt.Println(sc.name)
		for range rounds {
			for _, kind := range kinds {
				load, _ := os.ReadFile("/proc/loadavg")
				before := used(ctx, s)
				all, done, clients, err := sections(job{URL: url, Kind: kind, Workers: sc.workers, Hold: sc.hold, Pairs: sc.pairs}, sc.processes, d)
				if err != nil {
					return err
				}
				u := used(ctx, s)
				n := float64(done)
				fmt.Printf("  %-7s %s  per section: %.1f transactions, %.0f B of log, server CPU %.0f µs, clients' %.0f µs; load %.4s\n",
					kind, report(all, sc.processes, d, sc.pairs), float64(u.commits-before.commits)/n, float64(u.wal-before.wal)/n,
					(u.server-before.server)/n*1e6, clients.Seconds()/n*1e6, load)
			}
		}
	}
	return nil
}

func sections(j job, processes int, d time.Duration) (all []section, done int, cpu time.Duration, err error) {
	j.Until = time.Now().Add(d + 500*time.Millisecond)
	var children []*child.Child
	for i := range processes {
		j.Me = i
		c, err := child.Start("linebench", j, nil)
		if err != nil {
			return nil, 0, 0, err
		}
		children = append(children, c)
	}
	for _, c := range children {
		var of []section
		if err := json.NewDecoder(c).Decode(&of); err != nil {
			return nil, 0, 0, err
		}
		if err := c.Stop(5 * time.Second); err != nil {
			return nil, 0, 0, err
		}
		cpu += c.ProcessState.UserTime() + c.ProcessState.SystemTime()
		all = append(all, of...)
	}
	done = len(all)
	// The start of the processes is not measured.
	begin := j.Until.Add(-d).UnixNano()
	all = slices.DeleteFunc(all, func(s section) bool { return s.In < begin || s.Out > j.Until.UnixNano() })
	slices.SortFunc(all, func(a, b section) int { return int(a.In - b.In) })
	return all, done, cpu, nil
}

// usage is what a server has used since it was started.
type usage struct {
	commits, wal int64
	server       float64 // seconds
}

func used(ctx context.Context, s *servers.Server) (u usage) {
	time.Sleep(300 * time.Millisecond) // sessions that have ended report at their end, and are waited for
	conn, err := pgx.Connect(ctx, fmt.Sprintf("postgres://postgres@/app?host=%s&sslmode=disable", s.Dir))
	if err != nil {
		panic(err)
	}
	defer conn.Close(ctx)
	if err := conn.QueryRow(ctx, `SELECT xact_commit, (pg_current_wal_insert_lsn() - '0/0')::bigint FROM pg_stat_database WHERE datname = 'app'`).Scan(&u.commits, &u.wal); err != nil {
		panic(err)
	}
	pid, err := os.ReadFile(filepath.Join(s.Data(), "postmaster.pid"))
	if err != nil {
		panic(err)
	}
	stat, err := os.ReadFile("/proc/" + strings.SplitN(string(pid), "\n", 2)[0] + "/stat")
	if err != nil {
		panic(err)
	}
	_, fields, _ := strings.Cut(string(stat), ") ")
	for _, f := range strings.Fields(fields)[11:15] { // utime, stime, cutime, cstime
		ticks, _ := strconv.ParseFloat(f, 64)
		u.server += ticks / 100
	}
	if os.Getenv("STATEMENTS") != "" {
		_, _ = conn.Exec(ctx, "CREATE EXTENSION IF NOT EXISTS pg_stat_statements")
		rows, err := conn.Query(ctx, "SELECT calls, total_exec_time / calls, mean_plan_time, left(query, 60) FROM pg_stat_statements ORDER BY calls DESC LIMIT 12")
		for err == nil && rows.Next() {
			var calls int64
			var mean, plan float64
			var q string
			_ = rows.Scan(&calls, &mean, &plan, &q)
			fmt.Printf("      %6d × %.3f ms  %q\n", calls, mean, q)
		}
		_, _ = conn.Exec(ctx, "SELECT pg_stat_statements_reset()")
	}
	return u
}

func report(all []section, processes int, d time.Duration, pairs bool) string {
	n := make([]int, processes)
	var gaps, waits, took []int64
	changes := 0
	for i, s := range all {
		n[s.Me]++
		waits = append(waits, s.In-s.Asked)
		took = append(took, s.In-s.Asked)
		if i > 0 && !pairs {
			if all[i-1].Out > s.In {
				return fmt.Sprintf("TWO HOLDERS at %d", i)
			}
			if all[i-1].Me != s.Me {
				changes++
				gaps = append(gaps, s.In-all[i-1].Out)
			}
		}
	}
	at := func(v []int64, p float64) float64 {
		if len(v) == 0 {
			return 0
		}
		slices.Sort(v)
		return float64(v[int(p*float64(len(v)-1))]) / 1e6
	}
	text := fmt.Sprintf("%7.0f/s", float64(len(all))/d.Seconds())
	if pairs {
		return text + fmt.Sprintf("  Lock p50 %.3f p99 %.3f ms", at(took, .5), at(took, .99))
	}
	return text + fmt.Sprintf("  changes %5.0f/s  share %.2f  gap between processes p50 %.2f p99 %.1f ms  longest wait %.0f ms",
		float64(changes)/d.Seconds(), float64(slices.Min(n))/float64(max(1, slices.Max(n))), at(gaps, .5), at(gaps, .99), at(waits, 1))
}

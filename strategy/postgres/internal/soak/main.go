// Command soak puts strategy postgres under faults, on one server, for as long as one likes, and checks
// what its users saw; see package soak of the main module.
//
//	go run ./internal/soak -duration=5m -faults=kill,kill-server
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/jackc/pgx/v5"

	"github.com/distlock/locker"
	"github.com/distlock/locker/internal/servers"
	"github.com/distlock/locker/internal/test/soak"
	"github.com/distlock/locker/internal/test/soak/sqlsoak"
	"github.com/distlock/locker/strategy"
	_ "github.com/distlock/locker/strategy/postgres/register"
)

const topology soak.Topology = "postgres"

// on returns the strategy with keys of so many permits; 0: with locks.
func on(name string, permits int) soak.Strategy {
	return soak.Strategy{Name: name, On: []soak.Topology{topology}, Permits: permits, New: func(p soak.Process) (locker.Locker, error) {
		return open(p, "")
	}}
}

// sticky returns locks that every other process keeps.
func sticky() soak.Strategy {
	s := on("postgres sticky", 0)
	s.New = func(p soak.Process) (locker.Locker, error) {
		if p.Index%2 == 0 {
			return open(p, "&sticky=300ms")
		}
		return open(p, "")
	}
	return s
}

// open makes a Locker as a user does.
func open(p soak.Process, params string) (locker.Locker, error) {
	l, _, err := strategy.OpenURL(context.Background(), "postgres://app@"+p.Addrs[0]+"/app?sslmode=disable&pool_max_conns=8"+params)
	return l, err
}

var strategies = []soak.Strategy{
	on("postgres", 0),
	sticky(),
	on("postgres+semaphore", 5),
	on("postgres+rwlock", locker.MaxPermits),
}

// launch makes a server whose commits survive kill -9, and not a power cut.
func launch() (*sqlsoak.Server, error) {
	s, err := servers.Postgres("fsync=off", "shared_buffers=16MB")
	if err != nil {
		return nil, err
	}
	url := fmt.Sprintf("postgres://app@/app?host=%s&sslmode=disable", s.Dir)
	return &sqlsoak.Server{Server: s, Socket: filepath.Join(s.Dir, ".s.PGSQL.5432"), Ready: func(ctx context.Context) error {
		conn, err := pgx.Connect(ctx, url)
		if err != nil {
			return err
		}
		return conn.Close(ctx)
	}}, nil
}

func config() soak.Config {
	return soak.Config{Strategies: strategies, Own: sqlsoak.Own(topology, launch)}
}

func main() {
	soak.ServeWorker(strategies...)
	os.Exit(soak.Main(config(), os.Args[1:]))
}

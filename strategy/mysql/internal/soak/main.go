// Command soak puts strategy mysql under faults, on one server, for as long as one likes, and checks
// what its users saw; see package soak of the main module.
//
//	go run ./internal/soak -duration=5m -faults=kill,kill-server
package main

import (
	"context"
	"database/sql"
	"os"

	"github.com/go-sql-driver/mysql"

	"github.com/distlock/locker"
	"github.com/distlock/locker/internal/servers"
	"github.com/distlock/locker/internal/test/soak"
	"github.com/distlock/locker/internal/test/soak/sqlsoak"
	"github.com/distlock/locker/strategy"
	_ "github.com/distlock/locker/strategy/mysql/register"
)

const topology soak.Topology = "mysql"

// on returns the strategy with keys of so many permits; 0: with locks.
func on(name string, permits int) soak.Strategy {
	return soak.Strategy{Name: name, On: []soak.Topology{topology}, Permits: permits, New: func(p soak.Process) (locker.Locker, error) {
		return open(p, "")
	}}
}

// open makes a Locker as a user does.
func open(p soak.Process, params string) (locker.Locker, error) {
	l, _, err := strategy.OpenURL(context.Background(), "mysql://app@"+p.Addrs[0]+"/app?max_conns=16"+params)
	return l, err
}

var strategies = []soak.Strategy{
	on("mysql", 0),
	on("mysql+semaphore", 5),
	on("mysql+rwlock", locker.MaxPermits),
}

// launch makes a MariaDB or MySQL whose commits survive kill -9, and not a power cut.
func launch() (*sqlsoak.Server, error) {
	s, err := servers.MySQL(false, "--innodb-flush-log-at-trx-commit=2", "--loose-innodb-flush-method=nosync")
	if err != nil {
		return nil, err
	}
	cfg := mysql.NewConfig()
	cfg.User, cfg.DBName, cfg.Net, cfg.Addr, cfg.Logger = "app", "app", "unix", s.Socket(), &mysql.NopLogger{}
	return &sqlsoak.Server{Server: s, Socket: s.Socket(), Ready: func(ctx context.Context) error {
		connector, err := mysql.NewConnector(cfg)
		if err != nil {
			return err
		}
		db := sql.OpenDB(connector)
		defer db.Close()
		return db.PingContext(ctx)
	}}, nil
}

func config() soak.Config {
	return soak.Config{Strategies: strategies, Own: sqlsoak.Own(topology, launch)}
}

func main() {
	soak.ServeWorker(strategies...)
	os.Exit(soak.Main(config(), os.Args[1:]))
}

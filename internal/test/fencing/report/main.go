//go:build unix

// Command report brings faults about for strategy postgres and strategy mysql, on real servers and with real
// processes, and writes what happened into docs/report.md.
//
//	go run ./report -case partition
package main

import (
	"context"
	"database/sql"
	"io"
	"log"
	"os"
	"path/filepath"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/conformance/faultproxy"
	"github.com/distlock/locker/internal/test/report"
	"github.com/distlock/locker/internal/test/sqlservers"
	"github.com/distlock/locker/strategy/mysql"
	"github.com/distlock/locker/strategy/postgres"
	mysqldriver "github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib"
)

func main() {
	os.Exit(report.Report{
		Store: "SQL", Dir: "internal/test/fencing", Program: "./report", Server: versions,
		Subjects: []report.Subject{
			{Name: "postgres", Nodes: 1, Renews: true, Reports: true, Tokens: true, Check: "`Err`", Open: openPostgres},
			{Name: "mysql", Nodes: 1, Renews: true, Reports: true, Tokens: true, Check: "`Err`", Open: openMySQL},
		},
		Cases: cases(),
	}.Main())
}

func cases() []report.Case {
	all := report.Cases(start)
	for i, c := range all {
		if c.Name == "forget" {
			const why = "the loss is known at the next renewal, TTL/3 after the last. A token stops the earlier holder's writes as soon as the next owner has written."
			all[i].Why = map[string]string{"postgres": why, "mysql": why}
		}
	}
	return all
}

func openPostgres(t report.Target, ttl time.Duration) (report.Client, error) {
	pool, err := pgxpool.New(context.Background(), "postgres://app@"+t.Addrs[0]+"/app?sslmode=disable")
	if err != nil {
		return nil, err
	}
	l, err := postgres.New(pool, locker.WithTTL(ttl))
	return report.Ours(l), err
}

func openMySQL(t report.Target, ttl time.Duration) (report.Client, error) {
	if err := mysqldriver.SetLogger(log.New(io.Discard, "", 0)); err != nil { // connections are reset on purpose
		return nil, err
	}
	db, err := sql.Open("mysql", "root@tcp("+t.Addrs[0]+")/app")
	if err != nil {
		return nil, err
	}
	l, err := mysql.New(db, locker.WithTTL(ttl))
	return report.Ours(l), err
}

// stage is a server with a proxy for each of two processes.
type stage struct {
	server *sqlservers.Server
	db     *sql.DB
	report.Links
}

func start(s report.Subject) (report.Stage, error) {
	launch, socket := sqlservers.Postgres, ".s.PGSQL.5432"
	if s.Name == "mysql" {
		launch, socket = sqlservers.MariaDB, "sock"
	}
	server, err := launch()
	if err != nil {
		return nil, err
	}
	st := &stage{server: server}
	if st.db, err = sql.Open(server.Driver, server.DSN); err != nil {
		st.Close()
		return nil, err
	}
	err = st.Link(func() (*faultproxy.Proxy, error) { return faultproxy.NewPlain(filepath.Join(server.Dir, socket)) })
	if err != nil {
		st.Close()
		return nil, err
	}
	return st, nil
}

// Forget deletes all locks.
func (st *stage) Forget(ctx context.Context) error {
	_, err := st.db.ExecContext(ctx, "DELETE FROM locker_locks")
	return err
}

func (st *stage) Close() {
	st.Unlink()
	if st.db != nil {
		_ = st.db.Close()
	}
	st.server.Stop()
}

// versions returns the versions of the servers.
func versions() string {
	text := ""
	for _, of := range []struct{ subject, before, query string }{
		{"postgres", "PostgreSQL ", "SHOW server_version"}, {"mysql", ", ", "SELECT VERSION()"},
	} {
		st, err := start(report.Subject{Name: of.subject})
		if err != nil {
			return err.Error()
		}
		version := ""
		if err := st.(*stage).db.QueryRow(of.query).Scan(&version); err != nil {
			version = err.Error()
		}
		st.Close()
		text += of.before + version
	}
	return text
}

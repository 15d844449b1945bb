// Package databases starts PostgreSQL and MariaDB for the tests of package fence.
package databases

import (
	"context"
	"database/sql"

	_ "github.com/go-sql-driver/mysql" // the driver "mysql"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"

	"github.com/distlock/locker/internal/servers"
)

// Database is an empty database on a server of its own.
type Database struct {
	Driver, DSN string // for sql.Open

	*servers.Server
}

// LeftOut reports whether the environment leaves one of the databases out of the tests.
func LeftOut() bool { return servers.LeftOut("postgres") || servers.LeftOut("mysql") }

// Postgres starts a PostgreSQL.
func Postgres() (*Database, error) {
	s, err := servers.Postgres("fsync=off", "shared_buffers=16MB")
	if err != nil {
		return nil, err
	}
	return start(&Database{"pgx", "postgres://app@/app?sslmode=disable&host=" + s.Dir, s})
}

// MariaDB starts a MariaDB.
func MariaDB() (*Database, error) {
	s, err := servers.MySQL(false, "--innodb-flush-log-at-trx-commit=0")
	if err != nil {
		return nil, err
	}
	return start(&Database{"mysql", "root@unix(" + s.Socket() + ")/app", s})
}

func start(d *Database) (*Database, error) {
	db, err := sql.Open(d.Driver, d.DSN)
	if err == nil {
		defer db.Close()
		err = d.Start(context.Background(), db.PingContext)
	}
	if err != nil {
		d.Stop()
		return nil, err
	}
	return d, nil
}

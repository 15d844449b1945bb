// Package sqlservers starts PostgreSQL and MariaDB for tests that use database/sql. A program that uses it
// imports the drivers: stdlib of pgx, as "pgx", and go-sql-driver/mysql, as "mysql".
package sqlservers

import (
	"context"
	"database/sql"

	"github.com/distlock/locker/internal/servers"
)

// Server is a server of its own with an empty database.
type Server struct {
	Driver, DSN string // for sql.Open

	*servers.Server
}

// LeftOut reports whether LOCKER_POSTGRES=off or LOCKER_MYSQL=off leaves tests on one of the stores out.
func LeftOut(stores ...string) bool {
	for _, store := range stores {
		if servers.LeftOut(store) {
			return true
		}
	}
	return false
}

// Postgres starts a PostgreSQL.
func Postgres() (*Server, error) {
	s, err := servers.Postgres("fsync=off", "shared_buffers=16MB")
	if err != nil {
		return nil, err
	}
	return start(&Server{"pgx", "postgres://app@/app?sslmode=disable&host=" + s.Dir, s})
}

// MariaDB starts a MariaDB.
func MariaDB() (*Server, error) {
	s, err := servers.MySQL(false, "--innodb-flush-log-at-trx-commit=0")
	if err != nil {
		return nil, err
	}
	return start(&Server{"mysql", "root@unix(" + s.Socket() + ")/app", s})
}

func start(s *Server) (*Server, error) {
	db, err := sql.Open(s.Driver, s.DSN)
	if err == nil {
		defer db.Close()
		err = s.Start(context.Background(), db.PingContext)
	}
	if err != nil {
		s.Stop()
		return nil, err
	}
	return s, nil
}

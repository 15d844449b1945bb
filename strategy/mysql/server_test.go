package mysql_test

import (
	"context"
	"database/sql"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/distlock/locker/internal/servers"
	"github.com/distlock/locker/internal/test/clock"
)

// server is a MariaDB or MySQL of its own, on a port of this host and by a socket.
type server struct {
	*servers.Server
	root *sql.DB
}

func startServer(tb testing.TB, settings ...string) *server {
	tb.Helper()
	s, err := newServer(settings...)
	require.NoError(tb, err)
	tb.Cleanup(s.stop)
	require.NoError(tb, s.start())
	return s
}

func newServer(settings ...string) (*server, error) {
	quick := []string{"--innodb-flush-log-at-trx-commit=2", "--loose-innodb-flush-method=nosync"}
	s, err := servers.MySQL(true, append(quick, settings...)...)
	if err != nil {
		return nil, err
	}
	cfg := config("root", "")
	cfg.Net, cfg.Addr, cfg.MultiStatements, cfg.InterpolateParams = "unix", s.Socket(), true, true
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		return nil, err
	}
	root := sql.OpenDB(connector)
	root.SetMaxOpenConns(1)
	return &server{s, root}, nil
}

// isMariaDB reports whether it is a MariaDB, and no MySQL.
func (s *server) isMariaDB() bool { return strings.Contains(s.About, "MariaDB") }

func (s *server) start() error {
	return s.Start(context.Background(), func(ctx context.Context) error { return s.admin(ctx, `DO 0`) })
}

func (s *server) stop() {
	_ = s.root.Close()
	s.Stop()
}

// admin runs SQL as the superuser.
func (s *server) admin(ctx context.Context, sql string, args ...any) error {
	_, err := s.root.ExecContext(ctx, sql, args...)
	return err
}

// ask gets a value as the superuser.
func (s *server) ask(ctx context.Context, value any, sql string, args ...any) error {
	return s.root.QueryRowContext(ctx, sql, args...).Scan(value)
}

func (s *server) addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.Ports[0])) }

func config(user, database string) *mysql.Config {
	cfg := mysql.NewConfig()
	cfg.User, cfg.DBName, cfg.Logger = user, database, &mysql.NopLogger{}
	return cfg
}

// dsn is one for the user app.
func (s *server) dsn(params string) string {
	cfg := config("app", "app")
	cfg.Net, cfg.Addr = "tcp", s.addr()
	return cfg.FormatDSN() + params
}

// pool is one of the user app, with at most n connections, if that is not 0.
func (s *server) pool(tb testing.TB, n int, params string) *sql.DB {
	tb.Helper()
	db, err := openPool(s.dsn(params), n)
	require.NoError(tb, err)
	tb.Cleanup(func() { _ = db.Close() })
	return db
}

func openPool(dsn string, n int) (*sql.DB, error) {
	cfg, err := mysql.ParseDSN(dsn)
	if err != nil {
		return nil, err
	}
	cfg.Logger = &mysql.NopLogger{}
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		return nil, err
	}
	db := sql.OpenDB(connector)
	db.SetMaxOpenConns(n)
	db.SetMaxIdleConns(max(n, 8))
	return db, nil
}

// withClock makes the server read a clock that setClock moves.
func (s *server) withClock(tb testing.TB) {
	tb.Helper()
	var err error
	s.Env, err = clock.Environment(s.Dir)
	require.NoError(tb, err)
}

func (s *server) setClock(tb testing.TB, ahead time.Duration) {
	tb.Helper()
	require.NoError(tb, clock.Set(s.Dir, ahead))
}

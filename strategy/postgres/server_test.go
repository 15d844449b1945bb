package postgres_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/distlock/locker/internal/servers"
)

// server is a PostgreSQL of its own, with a database and a role app, which may create tables.
type server struct{ *servers.Server }

// quick are settings of all of them.
var quick = []string{"fsync=off", "shared_buffers=16MB"}

func startServer(tb testing.TB, settings ...string) *server {
	tb.Helper()
	s, err := launch(settings...)
	require.NoError(tb, err)
	tb.Cleanup(s.Stop)
	return s
}

func launch(settings ...string) (*server, error) {
	s, err := servers.Postgres(append(settings, quick...)...)
	if err != nil {
		return nil, err
	}
	return &server{s}, (&server{s}).start()
}

func (s *server) start() error {
	return s.Start(context.Background(), func(ctx context.Context) error {
		conn, err := s.connect(ctx, "postgres", "postgres")
		if err != nil {
			return err
		}
		return conn.Close(ctx)
	})
}

func (s *server) url(role, database string) string {
	return fmt.Sprintf("postgres://%s@/%s?host=%s&sslmode=disable", role, database, s.Dir)
}

func (s *server) connect(ctx context.Context, role, database string) (*pgx.Conn, error) {
	return pgx.Connect(ctx, s.url(role, database))
}

// admin runs SQL as the superuser.
func (s *server) admin(ctx context.Context, sql string, args ...any) error {
	conn, err := s.connect(ctx, "postgres", "app")
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, sql, args...)
	return err
}

// ask gets a value as the superuser.
func (s *server) ask(ctx context.Context, value any, sql string) error {
	conn, err := s.connect(ctx, "postgres", "app")
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	return conn.QueryRow(ctx, sql).Scan(value)
}

// pool is one as role app.
func (s *server) pool(tb testing.TB, params string) *pgxpool.Pool {
	tb.Helper()
	return newPool(tb, s.url("app", "app")+params)
}

func newPool(tb testing.TB, url string) *pgxpool.Pool {
	tb.Helper()
	pool, err := pgxpool.New(context.Background(), url)
	require.NoError(tb, err)
	tb.Cleanup(pool.Close)
	return pool
}

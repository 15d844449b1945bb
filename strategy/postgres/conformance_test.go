package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/distlock/locker"
	"github.com/distlock/locker/conformance"
	"github.com/distlock/locker/driver"
	"github.com/distlock/locker/strategy/postgres"
)

// TestMain serves the suite's child processes, too: their spec is a URL.
func TestMain(m *testing.M) {
	conformance.Main(m, func(url string, opts ...locker.Option) (locker.Locker, error) {
		pool, err := pgxpool.New(context.Background(), url)
		if err != nil {
			return nil, err
		}
		return postgres.New(pool, opts...)
	})
}

func TestConformance(t *testing.T) {
	conformance.Run(t, conformance.OfDriver(newHarness), conformance.WithCases(conformance.TroubleCases(
		conformance.Trouble{Name: "ReadOnly", Words: "read-only transaction"},
		conformance.Trouble{Name: "NoPermission", Permanent: true, Words: "permission denied"},
		conformance.Trouble{Name: "Frozen"},
	)...))
}

// harness is one server. It can look into the table, break locks, lock rows as an
// application does, start processes, and make trouble for the server.
type harness struct {
	tb    testing.TB
	s     *server
	admin *pgxpool.Pool

	mu      sync.Mutex
	hurt    bool // the server is not fit for another harness
	persist bool
	undo    []func(context.Context) error
	plants  map[string]pgx.Tx
}

func newHarness(tb testing.TB) conformance.DriverHarness {
	tb.Helper()
	s, err := idle.take()
	require.NoError(tb, err)
	h := &harness{tb: tb, s: s, plants: make(map[string]pgx.Tx)}
	tb.Cleanup(func() {
		if h.hurt || s.admin(context.Background(), `DROP TABLE IF EXISTS `+table+`, `+permitsTable) != nil {
			s.Stop()
		} else {
			idle.put(s)
		}
	})
	h.admin = newPool(tb, s.url("postgres", "app"))
	tb.Cleanup(func() {
		for _, tx := range h.plants {
			_ = tx.Rollback(context.Background())
		}
	})
	return h
}

// idle are servers that a harness has left as it found them: they take most of the suite's
// time to make.
var idle spare

type spare struct {
	mu  sync.Mutex
	all []*server
}

func (i *spare) put(s *server) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.all = append(i.all, s)
}

func (i *spare) take() (*server, error) {
	i.mu.Lock()
	n := len(i.all)
	if n == 0 {
		i.mu.Unlock()
		return launch()
	}
	defer i.mu.Unlock()
	s := i.all[n-1]
	i.all = i.all[:n-1]
	return s, nil
}

func (h *harness) NewDriver() (driver.Driver, error) {
	return postgres.NewDriver(h.s.pool(h.tb, "&pool_max_conns=4&pool_max_conn_idle_time=1s&pool_health_check_period=500ms")), nil
}

// StoreAddr implements [conformance.Wired].
func (h *harness) StoreAddr() string { return filepath.Join(h.s.Dir, ".s.PGSQL.5432") }

// NewDriverAt implements [conformance.Wired].
func (h *harness) NewDriverAt(addr string) (driver.Driver, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	url := fmt.Sprintf("postgres:///app?user=app&host=%s&port=%s&sslmode=disable&pool_max_conns=4", host, port)
	pool, err := pgxpool.New(context.Background(), url)
	if err != nil {
		return nil, err
	}
	h.tb.Cleanup(pool.Close)
	return postgres.NewDriver(pool), nil
}

func (h *harness) Capabilities() conformance.Capabilities {
	return conformance.Capabilities{Name: "postgres", Fencing: true, Notified: true, Admin: true, Signals: true, Sticky: true, Permits: true}
}

func (h *harness) ChildSpec() string { return h.s.url("app", "app") }

// Background: pools have goroutines for as long as they are open, and close broken
// connections on their own time.
func (h *harness) Background(stack string) bool {
	return strings.Contains(stack, "pgxpool.(*Pool)") || strings.Contains(stack, "pgconn.(*PgConn).asyncClose") ||
		strings.Contains(stack, "puddle")
}

// The Inspector.

const (
	table        = "public.locker_locks"
	permitsTable = "public.locker_locks_permits"
)

// query finds nothing in a table that was not made yet.
func (h *harness) query(ctx context.Context, sql string, scan func(pgx.Rows) error, args ...any) error {
	rows, err := h.admin.Query(ctx, sql, append([]any{pgx.QueryExecModeExec}, args...)...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := scan(rows); err != nil {
			return err
		}
	}
	if missing := (*pgconn.PgError)(nil); errors.As(rows.Err(), &missing) && missing.Code == "42P01" {
		return nil
	}
	return rows.Err()
}

func milliseconds(n float64) time.Duration { return time.Duration(n * float64(time.Millisecond)) }

// Keys lists the rows, and the connections that listen.
func (h *harness) Keys(ctx context.Context) (keys []conformance.StoredKey, err error) {
	err = h.query(ctx, `
		SELECT key, CASE WHEN expires > clock_timestamp() THEN '' ELSE 'free: ' END,
			extract(epoch FROM greatest(expires, forget) - clock_timestamp()) * 1000
		FROM `+table, func(rows pgx.Rows) error {
		var key []byte
		var free string
		var left float64
		err := rows.Scan(&key, &free, &left)
		keys = append(keys, conformance.StoredKey{Name: free + string(key), TTL: milliseconds(left)})
		return err
	})
	return keys, err
}

func (h *harness) Holder(ctx context.Context, key string) (holder string, err error) {
	var id []byte
	err = h.query(ctx, `SELECT id FROM `+table+` WHERE hash = sha256($1) AND expires > clock_timestamp()`,
		func(rows pgx.Rows) error { return rows.Scan(&id) }, []byte(key))
	return string(id), err
}

func (h *harness) TTL(ctx context.Context, key string) (left time.Duration, err error) {
	err = h.query(ctx, `SELECT extract(epoch FROM expires - clock_timestamp()) * 1000 FROM `+table+`
		WHERE hash = sha256($1) AND expires > clock_timestamp()`, func(rows pgx.Rows) error {
		var ms float64
		err := rows.Scan(&ms)
		left = milliseconds(ms)
		return err
	}, []byte(key))
	return left, err
}

// The Breaker.

func (h *harness) exec(ctx context.Context, sql string, args ...any) error {
	return h.query(ctx, sql, func(pgx.Rows) error { return nil }, args...)
}

func (h *harness) Break(ctx context.Context, key string) error {
	return h.exec(ctx, `UPDATE `+table+` SET id = '', expires = '-infinity' WHERE hash = sha256($1)`, []byte(key))
}

func (h *harness) Expire(ctx context.Context, key string) error {
	return h.exec(ctx, `UPDATE `+table+` SET expires = clock_timestamp() WHERE hash = sha256($1)`, []byte(key))
}

func (h *harness) Steal(ctx context.Context, key string) error {
	return h.exec(ctx, `UPDATE `+table+` SET id = 'thief', owner = 'thief', expires = clock_timestamp() + interval '1 min'
		WHERE hash = sha256($1)`, []byte(key))
}

func (h *harness) Flush(ctx context.Context) error {
	_, err := h.admin.Exec(ctx, `DROP TABLE IF EXISTS `+table+`, `+permitsTable)
	return err
}

// The Planter: an application has the row locked.

func (h *harness) Foreigners() []conformance.Foreigner {
	return []conformance.Foreigner{{Name: "application"}}
}

func (h *harness) Plant(ctx context.Context, key, _ string) error {
	schema, err := postgres.Schema(table)
	if err != nil {
		return err
	}
	conn, err := h.s.connect(ctx, "app", "app")
	if err != nil {
		return err
	}
	h.tb.Cleanup(func() { _ = conn.Close(context.Background()) })
	if _, err := conn.PgConn().Exec(ctx, schema).ReadAll(); err != nil {
		return err
	}
	if _, err := conn.Exec(ctx, `INSERT INTO `+table+` (key) VALUES ($1) ON CONFLICT DO NOTHING`, []byte(key)); err != nil {
		return err
	}
	tx, err := conn.Begin(ctx)
	if err != nil {
		return err
	}
	h.mu.Lock()
	h.plants[key] = tx
	h.mu.Unlock()
	return tx.QueryRow(ctx, `SELECT FROM `+table+` WHERE hash = sha256($1) AND expires <= clock_timestamp() FOR UPDATE`,
		[]byte(key)).Scan()
}

func (h *harness) Intact(ctx context.Context, key, _ string) (bool, error) {
	h.mu.Lock()
	tx := h.plants[key]
	h.mu.Unlock()
	var n int
	err := tx.QueryRow(ctx, `SELECT count(*) FROM `+table+` WHERE hash = sha256($1) AND id = ''`, []byte(key)).Scan(&n)
	return n == 1, err
}

// The ServerFaults.

func (h *harness) Persist() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.persist = true
	return nil
}

// Crash: PostgreSQL loses nothing that it acknowledged, unless it is made to.
func (h *harness) Crash() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.hurt = true
	h.s.Crash()
	h.undo = append(h.undo, func(context.Context) error {
		if !h.persist {
			if err := h.s.Fresh(); err != nil {
				return err
			}
		}
		return h.s.start()
	})
	return nil
}

const cut = `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'app'`

func (h *harness) CutConnections() error { return h.s.admin(context.Background(), cut) }

func (h *harness) Cause(trouble string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.hurt = true
	ctx := context.Background()
	do := func(sql, undo string) error {
		h.undo = append(h.undo, func(ctx context.Context) error { return h.s.admin(ctx, undo) })
		return h.s.admin(ctx, sql)
	}
	switch trouble {
	case "ReadOnly":
		h.undo = append(h.undo, func(ctx context.Context) error { return h.readOnly(ctx, "off") })
		return h.readOnly(ctx, "on")
	case "NoPermission":
		return do(`REVOKE ALL ON `+table+` FROM app`, `GRANT ALL ON `+table+` TO app`)
	case "Frozen":
		h.undo = append(h.undo, func(context.Context) error { h.s.Thaw(); return nil })
		h.s.Freeze()
		return nil
	}
	return fmt.Errorf("no such trouble: %s", trouble)
}

// readOnly returns when a new session has the setting: those there are were told before.
func (h *harness) readOnly(ctx context.Context, value string) error {
	if err := h.s.admin(ctx, `ALTER SYSTEM SET default_transaction_read_only = `+value); err != nil {
		return err
	}
	for now := ""; now != value; {
		if err := h.s.ask(ctx, &now, `SELECT current_setting('default_transaction_read_only') FROM pg_reload_conf()`); err != nil {
			return err
		}
	}
	return nil
}

func (h *harness) Recover() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, undo := range h.undo {
		if err := undo(context.Background()); err != nil {
			return err
		}
	}
	h.undo = nil
	return nil
}

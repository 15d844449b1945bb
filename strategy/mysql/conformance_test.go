package mysql_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/distlock/locker"
	"github.com/distlock/locker/conformance"
	"github.com/distlock/locker/driver"
	lockmysql "github.com/distlock/locker/strategy/mysql"
)

// TestMain serves the suite's child processes, too: their spec is a DSN.
func TestMain(m *testing.M) {
	conformance.Main(m, func(dsn string, opts ...locker.Option) (locker.Locker, error) {
		db, err := openPool(dsn, 0)
		if err != nil {
			return nil, err
		}
		return lockmysql.New(db, opts...)
	})
}

func TestConformance(t *testing.T) {
	conformance.Run(t, conformance.OfDriver(newHarness), conformance.WithCases(conformance.TroubleCases(
		conformance.Trouble{Name: "ReadOnly", Words: "read-only"},
		conformance.Trouble{Name: "NoPermission", Permanent: true, Words: "denied"},
		conformance.Trouble{Name: "TooManyConnections", Words: "Too many connections"},
		conformance.Trouble{Name: "Frozen"},
	)...))
}

// harness is one server. It can look into the table, break locks, start processes, and make
// trouble for the server.
type harness struct {
	tb testing.TB
	s  *server

	mu      sync.Mutex
	hurt    bool // the server is not fit for another harness
	persist bool
	undo    []func(context.Context) error
}

func newHarness(tb testing.TB) conformance.DriverHarness {
	tb.Helper()
	s, err := idle.take()
	require.NoError(tb, err)
	h := &harness{tb: tb, s: s}
	tb.Cleanup(func() {
		if h.hurt || h.Flush(context.Background()) != nil {
			s.stop()
		} else {
			idle.put(s)
		}
	})
	return h
}

// idle are servers that a harness has left as it found them.
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
		s, err := newServer()
		if err == nil {
			err = s.start()
		}
		return s, err
	}
	defer i.mu.Unlock()
	s := i.all[n-1]
	i.all = i.all[:n-1]
	return s, nil
}

func (h *harness) newDriver(dsn string) (driver.Driver, error) {
	db, err := openPool(dsn, 4)
	if err != nil {
		return nil, err
	}
	db.SetConnMaxIdleTime(time.Second)
	h.tb.Cleanup(func() { _ = db.Close() })
	return lockmysql.NewDriver(db), nil
}

func (h *harness) NewDriver() (driver.Driver, error) { return h.newDriver(h.s.dsn("")) }

// StoreAddr implements [conformance.Wired].
func (h *harness) StoreAddr() string { return h.s.addr() }

// NewDriverAt implements [conformance.Wired].
func (h *harness) NewDriverAt(addr string) (driver.Driver, error) {
	cfg := config("app", "app")
	cfg.Net, cfg.Addr = "tcp", addr
	return h.newDriver(cfg.FormatDSN())
}

func (h *harness) Capabilities() conformance.Capabilities {
	return conformance.Capabilities{Name: "mysql", Fencing: true, Admin: true, Signals: true, Permits: true}
}

func (h *harness) ChildSpec() string { return h.s.dsn("") }

// Background: a pool has a goroutine for as long as it is open, and a connection has one.
func (h *harness) Background(stack string) bool {
	return strings.Contains(stack, "database/sql.(*DB)") || strings.Contains(stack, "go-sql-driver/mysql.(*mysqlConn).startWatcher")
}

// The Inspector.

const (
	table        = "app.locker_locks"
	permitsTable = "app.locker_locks_permits"
	now          = `TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))`
)

// query finds nothing in a table that was not made yet.
func (h *harness) query(ctx context.Context, query string, scan func(*sql.Rows) error, args ...any) error {
	rows, err := h.s.root.QueryContext(ctx, query, args...)
	if missing := (*mysql.MySQLError)(nil); errors.As(err, &missing) && missing.Number == 1146 {
		return nil
	}
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := scan(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

func (h *harness) Keys(ctx context.Context) (keys []conformance.StoredKey, err error) {
	err = h.query(ctx, `SELECT lock_key, IF(expires > `+now+`, '', 'free: '), GREATEST(expires, forget) - `+now+` FROM `+table, func(rows *sql.Rows) error {
		var key, free string
		var left int64
		err := rows.Scan(&key, &free, &left)
		keys = append(keys, conformance.StoredKey{Name: free + key, TTL: time.Duration(left) * time.Microsecond})
		return err
	})
	return keys, err
}

const held = ` FROM ` + table + ` WHERE hash = UNHEX(SHA2(?, 256)) AND expires > ` + now

func (h *harness) Holder(ctx context.Context, key string) (holder string, err error) {
	err = h.query(ctx, `SELECT id`+held, func(rows *sql.Rows) error { return rows.Scan(&holder) }, []byte(key))
	return holder, err
}

func (h *harness) TTL(ctx context.Context, key string) (left time.Duration, err error) {
	err = h.query(ctx, `SELECT expires - `+now+held, func(rows *sql.Rows) error {
		err := rows.Scan(&left)
		left *= time.Microsecond
		return err
	}, []byte(key))
	return left, err
}

// The Breaker.

func (h *harness) Break(ctx context.Context, key string) error {
	return h.s.admin(ctx, `UPDATE `+table+` SET id = '', expires = 0 WHERE hash = UNHEX(SHA2(?, 256))`, []byte(key))
}

func (h *harness) Expire(ctx context.Context, key string) error {
	return h.s.admin(ctx, `UPDATE `+table+` SET expires = `+now+` WHERE hash = UNHEX(SHA2(?, 256))`, []byte(key))
}

func (h *harness) Steal(ctx context.Context, key string) error {
	return h.s.admin(ctx, `UPDATE `+table+` SET id = 'thief', owner = 'thief', expires = `+now+` + 60000000 WHERE hash = UNHEX(SHA2(?, 256))`, []byte(key))
}

func (h *harness) Flush(ctx context.Context) error {
	return h.s.admin(ctx, `DROP TABLE IF EXISTS `+table+`, `+permitsTable)
}

// The ServerFaults.

func (h *harness) Persist() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.persist = true
	return nil
}

// Crash: InnoDB loses nothing that it acknowledged, unless it is made to.
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

func (h *harness) CutConnections() error { return h.s.cut(context.Background()) }

// cut ends the connections of the user app.
func (s *server) cut(ctx context.Context) error {
	rows, err := s.root.QueryContext(ctx, `SELECT CONCAT('KILL ', id) FROM information_schema.processlist WHERE user = 'app'`)
	if err != nil {
		return err
	}
	defer rows.Close()
	var kills []string
	for rows.Next() {
		var kill string
		if err := rows.Scan(&kill); err != nil {
			return err
		}
		kills = append(kills, kill)
	}
	if err := rows.Err(); err != nil {
		return err
	}
	for _, kill := range kills {
		if err := s.admin(ctx, kill); err != nil && !strings.Contains(err.Error(), "Unknown thread") {
			return err
		}
	}
	return nil
}

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
		return do(`SET GLOBAL read_only = 1`, `SET GLOBAL read_only = 0`)
	case "NoPermission": // a session keeps what it may do in its database
		if err := do(`REVOKE ALL ON app.* FROM app`, `GRANT ALL ON app.* TO app`); err != nil {
			return err
		}
		return h.s.cut(ctx)
	case "TooManyConnections":
		return h.crowd(ctx)
	case "Frozen":
		h.undo = append(h.undo, func(context.Context) error { h.s.Thaw(); return nil })
		h.s.Freeze()
		return nil
	}
	return fmt.Errorf("no such trouble: %s", trouble)
}

// crowd takes all connections that the server has for those who are not its superuser.
func (h *harness) crowd(ctx context.Context) error {
	if err := h.s.admin(ctx, `CREATE USER IF NOT EXISTS crowd; SET GLOBAL max_connections = 10`); err != nil {
		return err
	}
	cfg := config("crowd", "")
	cfg.Net, cfg.Addr = "tcp", h.s.addr()
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		return err
	}
	crowd := sql.OpenDB(connector)
	h.undo = append(h.undo, func(ctx context.Context) error {
		if err := crowd.Close(); err != nil {
			return err
		}
		return h.s.admin(ctx, `SET GLOBAL max_connections = 1000`)
	})
	for n := 0; n < 20; {
		if err := h.s.cut(ctx); err != nil {
			return err
		}
		_, err := crowd.Conn(ctx)
		if full := (*mysql.MySQLError)(nil); errors.As(err, &full) && full.Number == 1040 {
			// Full for good: none is the application's, nor one whose handshake goes on, which may be. A connection that was
			// cut counts for a moment after it has left the list, so the rest has to fill the server without it.
			var crowded bool
			if err := h.s.ask(ctx, &crowded, `SELECT COALESCE(SUM(user IN ('app', 'unauthenticated user')), 0) = 0
				AND SUM(user NOT IN ('app', 'unauthenticated user', 'system user', 'event_scheduler')) >= @@max_connections
				FROM information_schema.processlist`); err != nil || crowded {
				return err
			}
			continue
		}
		if err != nil {
			return err
		}
		n++
	}
	return errors.New("the server is never full")
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

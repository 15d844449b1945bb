package mysql_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/distlock/locker/driver"
	"github.com/distlock/locker/internal/test/permitstest"
	lockmysql "github.com/distlock/locker/strategy/mysql"
)

var permitsKind = permitstest.Kind{
	Name: "mysql",
	Start: func(tb testing.TB, settings ...string) permitstest.Store {
		tb.Helper()
		return permitStore{startServer(tb, settings...)}
	},
	Dial: func(tb testing.TB, url string) driver.Driver {
		tb.Helper()
		db, err := openPool(url, 0)
		require.NoError(tb, err)
		tb.Cleanup(func() { _ = db.Close() })
		return lockmysql.NewDriver(db)
	},
	Keys: table, Claims: permitsTable, Key: "lock_key",
	Is: func(id string) string {
		return `hash = UNHEX(SHA2('k', 256)) AND claim = UNHEX(SHA2('` + id + `', 256))`
	},
	After: func(d time.Duration) string { return fmt.Sprintf("%s + (%d)", now, d.Microseconds()) },
	Text:  func(column string) string { return column },
	Word: func(text string, n int) string {
		return fmt.Sprintf("SUBSTRING_INDEX(SUBSTRING_INDEX(%s, ' ', %d), ' ', -1)", text, n)
	},
	Fill: `INSERT INTO ` + permitsTable + ` (hash, claim, id, owner, era, permits, token, ttl, since, expires, forget)
		SELECT hash, UNHEX(SHA2(CONCAT('filled:', n), 256)), CONCAT('filled:', n), owner, era, 1, n, ttl, since, expires + 1000000, forget
		FROM ` + permitsTable + ` p, (SELECT a.d + 10 * b.d + 100 * c.d + 1000 * e.d AS n FROM ` + digits + ` a, ` + digits + ` b, ` + digits + ` c, ` + digits + ` e) AS numbers
		WHERE p.id = '` + permitstest.IDOf(1) + `';
		UPDATE ` + table + ` SET id = CONCAT('permits 20000 10009 0')`,
	Levels: []string{"--transaction-isolation=READ-COMMITTED", "--transaction-isolation=REPEATABLE-READ", "--transaction-isolation=SERIALIZABLE"},

	WithTable: lockmysql.WithTable,
	Names:     []string{strings.Repeat("x", 56), strings.Repeat("x", 57), strings.Repeat("x", 64), "app." + strings.Repeat("y", 64), "a{now}b `%d"},
	Count:     `SELECT COUNT(*) FROM information_schema.tables WHERE table_name LIKE '%\\_permits'`,
	Missing:   []string{"mysql.PermitsSchema", "`locker_locks_permits`"},

	First:   [3]int{5, 2, 1},
	Refused: [2]int{3, 1},
	Sweeps:  true,
}

// The Release of a lock ends no bid, so that a Locker is not to send one.
func TestLockHasNoBidToEnd(t *testing.T) {
	t.Parallel()
	d := permitStore{startServer(t)}.Driver(t, 0)
	c := driver.Claim{Key: "k", ID: "a", Owner: "a", TTL: time.Minute, Permits: 1, Limit: 2}
	a, err := d.Acquire(t.Context(), driver.Request{Claim: c})
	require.NoError(t, err)
	require.True(t, a.Granted)
	lock := driver.Request{Claim: driver.Claim{Key: "k", ID: "b", Owner: "b", TTL: time.Minute}, Waits: true, Waited: driver.Patience}
	a, err = d.Acquire(t.Context(), lock)
	require.NoError(t, err)
	require.False(t, a.Granted)
	require.False(t, a.Bids)
	c.ID = "c"
	a, err = d.Acquire(t.Context(), driver.Request{Claim: c})
	require.NoError(t, err)
	require.False(t, a.Granted, "permits are kept free for the lock")
}

const digits = `(SELECT 0 AS d UNION SELECT 1 UNION SELECT 2 UNION SELECT 3 UNION SELECT 4 UNION SELECT 5 UNION SELECT 6 UNION SELECT 7 UNION SELECT 8 UNION SELECT 9)`

func TestPermits(t *testing.T) {
	t.Parallel()
	permitstest.Run(t, permitsKind)
}

func BenchmarkPermits(b *testing.B) { permitstest.Bench(b, permitsKind) }

// permitStore implements permitstest.Store.
type permitStore struct{ s *server }

func (p permitStore) CPU() time.Duration { return p.s.CPU() }

func (p permitStore) URL() string { return p.s.dsn("") }

func (p permitStore) Driver(tb testing.TB, n int) driver.Driver {
	tb.Helper()
	d := lockmysql.NewDriver(p.s.pool(tb, n, ""))
	tb.Cleanup(func() { _ = d.Close() })
	return d
}

func (p permitStore) Counted(tb testing.TB, n int) (driver.Driver, func() int) {
	tb.Helper()
	asked := 0 // to ask is a statement, too
	return p.Driver(tb, n), func() int {
		asked++
		return int(p.s.status(tb, "Questions")) - asked
	}
}

func (p permitStore) Reads(t *testing.T, f func(driver.Driver)) float64 {
	t.Helper()
	d, before := p.Driver(t, 1), p.s.rowsRead(t)
	f(d)
	return p.s.rowsRead(t) - before
}

func (p permitStore) Weak(t *testing.T) (driver.Driver, func()) {
	t.Helper()
	admin := func(sql string, err error) {
		t.Helper()
		require.NoError(t, err)
		require.NoError(t, p.Admin(t.Context(), sql))
	}
	may := `GRANT SELECT, INSERT, UPDATE, DELETE ON %s TO weak`
	admin(lockmysql.Schema(table))
	admin(`CREATE USER weak; `+fmt.Sprintf(may, table), nil)
	cfg := config("weak", "app")
	cfg.Net, cfg.Addr = "tcp", p.s.addr()
	return permitsKind.Dial(t, cfg.FormatDSN()), func() {
		admin(lockmysql.PermitsSchema(table))
		admin(fmt.Sprintf(may, permitsTable), nil)
	}
}

func (p permitStore) Admin(ctx context.Context, sql string) error { return p.s.admin(ctx, sql) }

func (p permitStore) Ask(ctx context.Context, value any, sql string) error {
	return p.s.ask(ctx, value, sql)
}

func (p permitStore) Lock(t *testing.T, sql string) func() {
	t.Helper()
	tx := begin(t, p.s.pool(t, 1, ""))
	_, err := tx.ExecContext(t.Context(), sql)
	require.NoError(t, err)
	return func() {
		t.Helper()
		require.NoError(t, tx.Commit())
	}
}

func (p permitStore) Waiting(t *testing.T) int {
	t.Helper()
	return int(p.s.status(t, "Innodb_row_lock_current_waits"))
}

func (p permitStore) Cut(ctx context.Context) error { return p.s.cut(ctx) }

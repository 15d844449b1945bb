// Package fencing_test tests package sqlfence on real servers. It is a module of its own, so that
// the main one need not have the drivers.
package fencing_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"
	_ "modernc.org/sqlite"

	"github.com/distlock/locker/fence"
	"github.com/distlock/locker/fence/fencetest"
	"github.com/distlock/locker/fence/sqlfence"
	"github.com/distlock/locker/internal/test/sqlservers"
)

// flavour is a dialect with a way to reach a database.
type flavour struct {
	name      string
	dialect   sqlfence.Dialect
	open      func(testing.TB) (driver, dsn string)
	schema    string // of the data
	put       string // with key and value
	get       string // with key
	impatient string // lets a statement wait for locks for a second at most
}

var flavours = []flavour{
	{
		"postgres", sqlfence.PostgreSQL, postgres, `CREATE TABLE IF NOT EXISTS data (name bytea PRIMARY KEY, value text)`,
		`INSERT INTO data VALUES (sha256($1), $2) ON CONFLICT (name) DO UPDATE SET value = excluded.value`,
		`SELECT value FROM data WHERE name = sha256($1)`, `SET LOCAL lock_timeout = '100ms'`,
	},
	mysqlFlavour("mariadb", ""),
	mysqlFlavour("mariadb-found-rows", "?clientFoundRows=true&interpolateParams=true"),
	{
		"sqlite", sqlfence.SQLite, func(tb testing.TB) (string, string) {
			return "sqlite", "file:" + filepath.Join(tb.TempDir(), "data") + "?_pragma=journal_mode(WAL)&_pragma=synchronous(OFF)&_pragma=busy_timeout(30000)"
		}, `CREATE TABLE IF NOT EXISTS data (name BLOB PRIMARY KEY, value TEXT)`,
		`INSERT INTO data VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value`,
		`SELECT value FROM data WHERE name = ?`, `PRAGMA busy_timeout = 100`,
	},
}

func mysqlFlavour(name, params string) flavour {
	return flavour{
		name, sqlfence.MySQL, func(tb testing.TB) (string, string) {
			driver, dsn := mariadb(tb)
			return driver, dsn + params
		}, `CREATE TABLE IF NOT EXISTS data (name BINARY(64) PRIMARY KEY, value TEXT)`,
		`INSERT INTO data VALUES (SHA2(?, 256), ?) ON DUPLICATE KEY UPDATE value = VALUES(value)`,
		`SELECT value FROM data WHERE name = SHA2(?, 256)`, `SET SESSION innodb_lock_wait_timeout = 1`,
	}
}

// start returns a func that starts a server for all tests, once.
func start(server func() (*sqlservers.Server, error)) func(testing.TB) (driver, dsn string) {
	once := sync.OnceValues(func() (*sqlservers.Server, error) {
		s, err := server()
		if err == nil {
			stopping.Lock()
			defer stopping.Unlock()
			stops = append(stops, s.Stop)
		}
		return s, err
	})
	return func(tb testing.TB) (driver, dsn string) {
		tb.Helper()
		if sqlservers.LeftOut("postgres", "mysql") {
			tb.Skip("a database is left out")
		}
		s, err := once()
		require.NoError(tb, err)
		return s.Driver, s.DSN
	}
}

var (
	postgres, mariadb = start(sqlservers.Postgres), start(sqlservers.MariaDB)

	stopping sync.Mutex
	stops    []func()
)

func (f flavour) connect(tb testing.TB) (*sql.DB, *sqlfence.Table) {
	tb.Helper()
	driver, dsn := f.open(tb)
	db, err := sql.Open(driver, dsn)
	require.NoError(tb, err)
	tb.Cleanup(func() { db.Close() })
	table, err := sqlfence.New(f.dialect, "")
	require.NoError(tb, err)
	for _, create := range []string{f.schema, table.Schema()} {
		creation.Lock()
		_, err = db.ExecContext(tb.Context(), create)
		creation.Unlock()
		require.NoError(tb, err)
	}
	return db, table
}

// creation is held while a table is created, which PostgreSQL refuses to two at the same time.
var creation sync.Mutex

// resource has values in a table, which are written in the transaction that admits.
type resource struct {
	fence.Guard
	flavour
	db    *sql.DB
	table *sqlfence.Table
}

func (r resource) Write(ctx context.Context, key string, token int64, value string) error {
	tx, err := r.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := r.table.AdmitTx(ctx, tx, key, token); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, r.put, []byte(key), value); err != nil {
		return err
	}
	return tx.Commit()
}

func (r resource) Read(ctx context.Context, key string) (value string, err error) {
	err = r.db.QueryRowContext(ctx, r.get, []byte(key)).Scan(&value)
	if errors.Is(err, sql.ErrNoRows) {
		err = nil
	}
	return value, err
}

func TestGuard(t *testing.T) {
	t.Parallel()
	for _, f := range flavours {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			fencetest.Run(t, func(tb testing.TB) fence.Guard {
				db, table := f.connect(tb)
				return resource{table.Guard(db), f, db, table}
			})
		})
	}
}

// pgxResource is a resource by pgx, without database/sql.
type pgxResource struct {
	pool  *pgxpool.Pool
	table *sqlfence.Table
}

func (r pgxResource) Admit(ctx context.Context, key string, token int64) error {
	return pgx.BeginFunc(ctx, r.pool, func(tx pgx.Tx) error {
		return r.table.AdmitTx(ctx, sqlfence.Pgx(tx), key, token)
	})
}

func (r pgxResource) Write(ctx context.Context, key string, token int64, value string) error {
	return pgx.BeginFunc(ctx, r.pool, func(tx pgx.Tx) error {
		if err := r.table.AdmitTx(ctx, sqlfence.Pgx(tx), key, token); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, flavours[0].put, []byte(key), value)
		return err
	})
}

func (r pgxResource) Read(ctx context.Context, key string) (value string, err error) {
	err = r.pool.QueryRow(ctx, flavours[0].get, []byte(key)).Scan(&value)
	if errors.Is(err, pgx.ErrNoRows) {
		err = nil
	}
	return value, err
}

func TestPgx(t *testing.T) {
	t.Parallel()
	_, dsn := postgres(t)
	fencetest.Run(t, func(tb testing.TB) fence.Guard {
		_, table := flavours[0].connect(tb)
		pool, err := pgxpool.New(tb.Context(), dsn)
		require.NoError(tb, err)
		tb.Cleanup(pool.Close)
		return pgxResource{pool, table}
	})
}

// each runs a test with every flavour, and a key of its own.
func each(t *testing.T, test func(t *testing.T, f flavour, db *sql.DB, table *sqlfence.Table, key string)) {
	t.Helper()
	t.Parallel()
	for _, f := range flavours {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			db, table := f.connect(t)
			test(t, f, db, table, t.Name())
		})
	}
}

func begin(t *testing.T, db *sql.DB, level sql.IsolationLevel) *sql.Tx {
	t.Helper()
	tx, err := db.BeginTx(t.Context(), &sql.TxOptions{Isolation: level})
	require.NoError(t, err)
	t.Cleanup(func() { tx.Rollback() })
	return tx
}

// An owner in its transaction keeps others out until the end of it, and one that is rolled
// back leaves no token.
func TestRowIsLocked(t *testing.T) {
	each(t, func(t *testing.T, f flavour, db *sql.DB, table *sqlfence.Table, key string) {
		require.NoError(t, table.Guard(db).Admit(t.Context(), key, 7))
		first := begin(t, db, sql.LevelDefault)
		require.NoError(t, table.AdmitTx(t.Context(), first, key, 8))

		conn, err := db.Conn(t.Context())
		require.NoError(t, err)
		defer conn.Close()
		if f.dialect != sqlfence.PostgreSQL {
			_, err = conn.ExecContext(t.Context(), f.impatient)
			require.NoError(t, err)
		}
		second, err := conn.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		if f.dialect == sqlfence.PostgreSQL {
			_, err = second.ExecContext(t.Context(), f.impatient)
			require.NoError(t, err)
		}
		err = table.AdmitTx(t.Context(), second, key, 9)
		require.Error(t, err, "it does not wait for the first one")
		require.NotErrorIs(t, err, fence.ErrStale)
		require.NoError(t, second.Rollback())

		require.NoError(t, first.Rollback())
		require.NoError(t, table.Guard(db).Admit(t.Context(), key, 7), "a token that was rolled back counts")
	})
}

// A transaction whose snapshot is older than the later owner's does not write late.
func TestOldSnapshot(t *testing.T) {
	for _, level := range []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable} {
		t.Run(level.String(), func(t *testing.T) {
			each(t, func(t *testing.T, f flavour, db *sql.DB, table *sqlfence.Table, key string) {
				level := level
				if f.dialect == sqlfence.SQLite {
					level = sql.LevelDefault // it has only one
				}
				r := resource{table.Guard(db), f, db, table}
				require.NoError(t, r.Write(t.Context(), key, 7, "seven"))
				late, err := db.BeginTx(t.Context(), &sql.TxOptions{Isolation: level})
				require.NoError(t, err)
				defer late.Rollback()
				var seen string
				require.NoError(t, late.QueryRowContext(t.Context(), f.get, []byte(key)).Scan(&seen))
				if f.dialect == sqlfence.MySQL && level == sql.LevelSerializable {
					require.NoError(t, r.Admit(t.Context(), key, 9)) // to read locks the data
				} else {
					require.NoError(t, r.Write(t.Context(), key, 9, "nine"))
				}
				err = table.AdmitTx(t.Context(), late, key, 8)
				require.Error(t, err)
				if f.dialect == sqlfence.MySQL || level == sql.LevelReadCommitted {
					require.ErrorIs(t, err, fence.ErrStale)
				}
			})
		})
	}
}

func TestPrune(t *testing.T) {
	each(t, func(t *testing.T, f flavour, db *sql.DB, _ *sqlfence.Table, key string) {
		name := "pruned_" + map[string]string{"mariadb-found-rows": "too"}[f.name]
		table, err := sqlfence.New(f.dialect, name)
		require.NoError(t, err)
		_, err = db.ExecContext(t.Context(), table.Schema())
		require.NoError(t, err)
		guard := table.Guard(db)
		require.NoError(t, guard.Admit(t.Context(), "old", 9))
		_, err = db.ExecContext(t.Context(), `UPDATE `+name+` SET admitted = admitted - 3600 * 48`)
		require.NoError(t, err)
		require.NoError(t, guard.Admit(t.Context(), "new", 9))

		n, err := table.Prune(t.Context(), db, 49*time.Hour)
		require.NoError(t, err)
		require.Zero(t, n)
		require.ErrorIs(t, guard.Admit(t.Context(), "old", 8), fence.ErrStale)
		n, err = table.Prune(t.Context(), db, 47*time.Hour)
		require.NoError(t, err)
		require.EqualValues(t, 1, n, "a refused token makes the row no younger")
		require.ErrorIs(t, guard.Admit(t.Context(), "new", 8), fence.ErrStale)
		require.NoError(t, guard.Admit(t.Context(), "old", 8), "as documented")
		_, err = table.Prune(t.Context(), db, time.Minute)
		require.ErrorIs(t, err, fence.ErrInvalid)
	})
}

// While Prune waits for the row of one key, writers of other keys wait for nobody.
func TestPruneLocksOneRow(t *testing.T) {
	each(t, func(t *testing.T, f flavour, db *sql.DB, _ *sqlfence.Table, key string) {
		if f.dialect == sqlfence.SQLite {
			return // a transaction has the whole database
		}
		name := "busy_" + map[string]string{"mariadb-found-rows": "too"}[f.name]
		table, err := sqlfence.New(f.dialect, name)
		require.NoError(t, err)
		_, err = db.ExecContext(t.Context(), table.Schema())
		require.NoError(t, err)
		var keys []string
		for i := range 20 {
			keys = append(keys, strconv.Itoa(i))
			require.NoError(t, table.Guard(db).Admit(t.Context(), keys[i], 9))
		}
		_, err = db.ExecContext(t.Context(), `UPDATE `+name+` SET admitted = admitted - 3600 * 48`)
		require.NoError(t, err)
		slices.SortFunc(keys, func(a, b string) int { // as Prune goes through them
			x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
			return bytes.Compare(x[:], y[:])
		})
		slow := begin(t, db, sql.LevelDefault)
		require.NoError(t, table.AdmitTx(t.Context(), slow, keys[19], 9))
		pruned := make(chan error, 1)
		go func() {
			n, err := table.Prune(t.Context(), db, 47*time.Hour)
			if err == nil && n != 19 {
				err = fmt.Errorf("%d rows pruned, want 19", n)
			}
			pruned <- err
		}()
		require.Eventually(t, func() bool {
			var left int
			return db.QueryRowContext(t.Context(), `SELECT count(*) FROM `+name).Scan(&left) == nil && left == 1
		}, 20*time.Second, 10*time.Millisecond, "Prune is held up at the first key")
		for _, key := range keys[:19] {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			require.NoError(t, table.Guard(db).Admit(ctx, key, 9))
			cancel()
		}
		require.NoError(t, slow.Commit())
		require.NoError(t, <-pruned)
		require.ErrorIs(t, table.Guard(db).Admit(t.Context(), keys[19], 8), fence.ErrStale, "its row was pruned")
	})
}

// The names of tables are quoted.
func TestTableNames(t *testing.T) {
	each(t, func(t *testing.T, f flavour, db *sql.DB, _ *sqlfence.Table, key string) {
		name := map[string]string{"postgres": "public.Order", "mariadb": "mysql.Order", "mariadb-found-rows": "Order2", "sqlite": "main.Order"}[f.name]
		table, err := sqlfence.New(f.dialect, name)
		require.NoError(t, err)
		for range 2 { // it may be there
			_, err = db.ExecContext(t.Context(), table.Schema())
			require.NoError(t, err)
		}
		require.NoError(t, table.Guard(db).Admit(t.Context(), key, 9))
		require.ErrorIs(t, table.Guard(db).Admit(t.Context(), key, 8), fence.ErrStale)
	})
}

// Without its table a guard admits nothing.
func TestNoTable(t *testing.T) {
	each(t, func(t *testing.T, f flavour, db *sql.DB, _ *sqlfence.Table, key string) {
		table, err := sqlfence.New(f.dialect, "missing")
		require.NoError(t, err)
		err = table.Guard(db).Admit(t.Context(), key, 9)
		require.ErrorContains(t, err, "sqlfence: key \""+key+"\": ")
		require.ErrorContains(t, err, "missing")
		require.NotErrorIs(t, err, fence.ErrStale)
	})
}

func TestMain(m *testing.M) {
	code := m.Run()
	for _, stop := range stops {
		stop()
	}
	os.Exit(code)
}

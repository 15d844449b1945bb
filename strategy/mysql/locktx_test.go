package mysql_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/distlock/locker"
	"github.com/distlock/locker/internal/test/pace"
	lockmysql "github.com/distlock/locker/strategy/mysql"
)

// makeTable makes the table of the Lockers.
func (s *server) makeTable(t *testing.T) {
	t.Helper()
	schema, err := lockmysql.Schema(table)
	require.NoError(t, err)
	require.NoError(t, s.admin(t.Context(), schema))
}

func begin(t *testing.T, db *sql.DB) *sql.Tx {
	t.Helper()
	tx, err := db.BeginTx(context.Background(), nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = tx.Rollback() })
	return tx
}

// waitsForRow returns when n statements wait for a row. (information_schema.innodb_trx does not show
// it to who asks more often than every 100 ms.)
func (s *server) waitsForRow(t *testing.T, n int) {
	t.Helper()
	pace.Eventually(t, 20*time.Second, "a statement waits for a row", func() bool {
		return s.status(t, "Innodb_row_lock_current_waits") == float64(n)
	})
}

// A transaction waits for the end of the one that has the key, however it ends.
func TestTransactionsExclude(t *testing.T) {
	t.Parallel()
	s, ctx := startServer(t), t.Context()
	s.makeTable(t)
	db := s.pool(t, 0, "")
	for _, row := range []string{"new", "there before"} {
		for name, end := range map[string]func(*sql.Tx) error{
			"commit":   (*sql.Tx).Commit,
			"rollback": (*sql.Tx).Rollback,
			"kill": func(tx *sql.Tx) error {
				id := 0
				if err := tx.QueryRowContext(ctx, `SELECT CONNECTION_ID()`).Scan(&id); err != nil {
					return err
				}
				return s.admin(ctx, fmt.Sprint(`KILL `, id))
			},
		} {
			first, second, key := begin(t, db), begin(t, db), "orders/"+name
			require.NoError(t, lockmysql.LockTx(ctx, first, key))
			require.NoError(t, lockmysql.LockTx(ctx, first, key), "it has the key")
			require.NoError(t, lockmysql.LockTx(ctx, second, key+" another"))
			got := make(chan error, 1)
			go func() { got <- lockmysql.LockTx(ctx, second, key) }()
			s.waitsForRow(t, 1)
			require.Empty(t, got)
			require.NoError(t, end(first))
			require.NoError(t, <-got, "%s, row %s", name, row)
			require.NoError(t, second.Commit())
		}
	}
}

// A read after LockTx sees what the one before has written, at the server's isolation level.
func TestTransactionSeesWhatTheOneBeforeWrote(t *testing.T) {
	t.Parallel()
	s, ctx := startServer(t), t.Context()
	s.makeTable(t)
	require.NoError(t, s.admin(ctx, `CREATE TABLE app.stock (units INT NOT NULL); INSERT INTO app.stock VALUES (0)`))
	db := s.pool(t, 0, "")
	const n = 20
	done := make(chan error, n)
	for range n {
		go func() {
			done <- func() error {
				tx, err := db.BeginTx(ctx, nil)
				if err != nil {
					return err
				}
				defer func() { _ = tx.Rollback() }()
				if err := lockmysql.LockTx(ctx, tx, "stock"); err != nil {
					return err
				}
				units := 0
				if err := tx.QueryRowContext(ctx, `SELECT units FROM stock`).Scan(&units); err != nil {
					return err
				}
				if _, err := tx.ExecContext(ctx, `UPDATE stock SET units = ?`, units+1); err != nil {
					return err
				}
				return tx.Commit()
			}()
		}()
	}
	for range n {
		require.NoError(t, <-done)
	}
	units := 0
	require.NoError(t, s.ask(ctx, &units, `SELECT units FROM app.stock`))
	require.Equal(t, n, units)
}

// The deadline of the context, and the server's innodb_lock_wait_timeout, end the wait.
func TestTransactionGivesUp(t *testing.T) {
	t.Parallel()
	s, ctx := startServer(t), t.Context()
	s.makeTable(t)
	db := s.pool(t, 0, "")
	first := begin(t, db)
	require.NoError(t, lockmysql.LockTx(ctx, first, "k"))
	short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
	defer cancel()
	start := time.Now()
	err := lockmysql.LockTx(short, begin(t, db), "k")
	require.ErrorIs(t, err, locker.ErrNotAcquired)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Less(t, time.Since(start), 5*time.Second)
	untouched := begin(t, db)
	require.ErrorIs(t, lockmysql.LockTx(short, untouched, "k"), locker.ErrNotAcquired, "the context had ended before")
	require.NoError(t, untouched.Commit())

	err = lockmysql.LockTx(ctx, begin(t, s.pool(t, 0, "?innodb_lock_wait_timeout=1")), "k")
	require.ErrorIs(t, err, locker.ErrNotAcquired)
	require.ErrorContains(t, err, "Lock wait timeout exceeded")
	require.NoError(t, first.Commit())
	require.NoError(t, lockmysql.LockTx(ctx, begin(t, db), "k"))
}

// A Locker and a transaction are in nobody's way; what is wrong is said.
func TestTransactionsAreNoLockers(t *testing.T) {
	t.Parallel()
	s, ctx := startServer(t), t.Context()
	db := s.pool(t, 0, "")
	err := lockmysql.LockTx(ctx, begin(t, db), "k")
	require.ErrorIs(t, err, locker.ErrUnavailable)
	require.ErrorContains(t, err, "mysql.Schema")

	l := newLocker(t, db)
	lease, err := l.TryLock(ctx, "k") // makes the table
	require.NoError(t, err)
	tx := begin(t, db)
	require.NoError(t, lockmysql.LockTx(ctx, tx, "k"), "a Locker holds the key")
	require.NoError(t, lease.Renew(ctx))
	require.NoError(t, lease.Unlock(ctx))
	lease, err = l.TryLock(ctx, "k")
	require.NoError(t, err, "a transaction has the key")
	require.NoError(t, lease.Unlock(ctx))
	for h, err := range l.Holders(ctx, "*") {
		require.NoError(t, err)
		require.Fail(t, "a transaction is no holder", h)
	}
	for _, key := range []string{"", "\xff", strings.Repeat("k", locker.MaxKeyLen+1)} {
		require.ErrorIs(t, lockmysql.LockTx(ctx, tx, key), locker.ErrInvalid)
	}
	require.ErrorIs(t, lockmysql.LockTx(noContext, tx, "k"), locker.ErrInvalid)
	require.NoError(t, tx.Commit())
	err = lockmysql.LockTx(ctx, tx, "k")
	require.ErrorIs(t, err, locker.ErrUnavailable, "the transaction is over")
	require.NotErrorIs(t, err, locker.ErrNotAcquired)
	require.ErrorIs(t, lockmysql.LockTx(ctx, nil, "k"), locker.ErrInvalid)
}

var noContext context.Context

// The server ends one of two transactions that wait for each other.
func TestTransactionsDeadlock(t *testing.T) {
	t.Parallel()
	s, ctx := startServer(t), t.Context()
	s.makeTable(t)
	db := s.pool(t, 0, "")
	a, b := begin(t, db), begin(t, db)
	require.NoError(t, lockmysql.LockTx(ctx, a, "1"))
	require.NoError(t, lockmysql.LockTx(ctx, b, "2"))
	ends := make(chan error, 2)
	run := func(tx *sql.Tx, key string) {
		err := lockmysql.LockTx(ctx, tx, key)
		_ = tx.Rollback()
		ends <- err
	}
	go run(a, "2")
	go run(b, "1")
	one, two := <-ends, <-ends
	if one == nil {
		one, two = two, one
	}
	require.ErrorIs(t, one, locker.ErrUnavailable)
	require.ErrorContains(t, one, "try all of it again")
	require.NoError(t, two)
}

func ExampleLockTx() {
	server, err := newServer() // yours is there already
	if err == nil {
		err = server.start()
	}
	if err != nil {
		log.Fatal(err)
	}
	defer server.stop()

	ctx := context.Background()
	db, err := sql.Open("mysql", server.dsn(""))
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	schema, err := lockmysql.Schema("locker_locks")
	if err != nil {
		log.Fatal(err)
	}
	if _, err := db.ExecContext(ctx, schema); err != nil {
		log.Fatal(err)
	}

	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	if err := lockmysql.LockTx(ctx, tx, "orders/42"); err != nil {
		log.Fatal(err)
	}
	fmt.Println("no other transaction has orders/42 until this one ends")
	fmt.Println(tx.Commit())
	// Output:
	// no other transaction has orders/42 until this one ends
	// <nil>
}

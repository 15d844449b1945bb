package postgres_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/distlock/locker"
	"github.com/distlock/locker/internal/test/pace"
	"github.com/distlock/locker/strategy/postgres"
)

// txKind makes transactions of one kind, each on a connection of its own.
type txKind struct {
	name  string
	begin func(t *testing.T) (lock func(ctx context.Context, key string) error, end func(commit bool) error)
}

func txKinds(s *server) []txKind {
	return []txKind{
		{"pgx", func(t *testing.T) (func(context.Context, string) error, func(bool) error) {
			conn, err := s.connect(t.Context(), "app", "app")
			require.NoError(t, err)
			t.Cleanup(func() { _ = conn.Close(context.Background()) })
			tx, err := conn.Begin(t.Context())
			require.NoError(t, err)
			return func(ctx context.Context, key string) error { return postgres.LockTx(ctx, tx, key) }, func(commit bool) error {
				if commit {
					return tx.Commit(context.Background())
				}
				return tx.Rollback(context.Background())
			}
		}},
		{"sql", func(t *testing.T) (func(context.Context, string) error, func(bool) error) {
			db, err := sql.Open("pgx", s.url("app", "app"))
			require.NoError(t, err)
			t.Cleanup(func() { _ = db.Close() })
			tx, err := db.BeginTx(context.Background(), nil)
			require.NoError(t, err)
			return func(ctx context.Context, key string) error { return postgres.LockSQLTx(ctx, tx, key) }, func(commit bool) error {
				if commit {
					return tx.Commit()
				}
				return tx.Rollback()
			}
		}},
	}
}

var _ = stdlib.GetDefaultDriver // registers "pgx"

// waitForLock returns when so many transactions wait for an advisory lock.
func waitForLock(t *testing.T, s *server, want int) {
	t.Helper()
	pace.Eventually(t, 20*time.Second, "transactions wait", func() bool {
		n := 0
		require.NoError(t, s.ask(t.Context(), &n, `SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted`))
		return n == want
	})
}

// A transaction waits for the end of the one that has the key, however it ends.
func TestTransactionsExclude(t *testing.T) {
	t.Parallel()
	s, ctx := startServer(t), t.Context()
	kinds := txKinds(s)
	for i, first := range kinds {
		second := kinds[1-i] // those of the two kinds exclude each other
		for name, end := range map[string]func(end func(bool) error) error{
			"commit":   func(end func(bool) error) error { return end(true) },
			"rollback": func(end func(bool) error) error { return end(false) },
			"kill": func(func(bool) error) error {
				return s.admin(ctx, `SELECT pg_terminate_backend(holder) FROM pg_locks, unnest(pg_blocking_pids(pid)) AS holder WHERE locktype = 'advisory' AND NOT granted`)
			},
		} {
			key := first.name + " " + name
			lock, endFirst := first.begin(t)
			require.NoError(t, lock(ctx, key))
			require.NoError(t, lock(ctx, key), "it has the key")
			lockOther, endOther := second.begin(t)
			require.NoError(t, lockOther(ctx, key+" another"))
			got := make(chan error, 1)
			go func() { got <- lockOther(ctx, key) }()
			waitForLock(t, s, 1)
			require.Empty(t, got)
			require.NoError(t, end(endFirst))
			require.NoError(t, <-got, key)
			require.NoError(t, endOther(true))
		}
	}
}

// Transactions get a key in the order in which they began to wait for it.
func TestTransactionsInOrder(t *testing.T) {
	t.Parallel()
	s, ctx := startServer(t), t.Context()
	kind := txKinds(s)[0]
	lock, end := kind.begin(t)
	require.NoError(t, lock(ctx, "k"))
	const waiters = 5
	got := make(chan int, waiters)
	var ended sync.WaitGroup
	for i := range waiters {
		lock, end := kind.begin(t)
		ended.Go(func() {
			if err := lock(ctx, "k"); err != nil {
				t.Error(err)
			}
			got <- i
			if err := end(true); err != nil {
				t.Error(err)
			}
		})
		waitForLock(t, s, i+1)
	}
	require.NoError(t, end(true))
	ended.Wait()
	for i := range waiters {
		require.Equal(t, i, <-got)
	}
}

// A transaction that does not get a key at once goes on.
func TestTryLockTx(t *testing.T) {
	t.Parallel()
	s, ctx := startServer(t), t.Context()
	conn, err := s.connect(ctx, "app", "app")
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	db, err := sql.Open("pgx", s.url("app", "app"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	first, err := conn.Begin(ctx)
	require.NoError(t, err)
	second, err := db.BeginTx(ctx, nil)
	require.NoError(t, err)
	for range 2 {
		locked, err := postgres.TryLockTx(ctx, first, "k")
		require.NoError(t, err)
		require.True(t, locked)
		locked, err = postgres.TryLockSQLTx(ctx, second, "k")
		require.NoError(t, err)
		require.False(t, locked)
	}
	require.NoError(t, postgres.LockSQLTx(ctx, second, "other"))
	locked, err := postgres.TryLockTx(ctx, first, "other")
	require.NoError(t, err)
	require.False(t, locked, "the key of LockTx and of TryLockTx is one")
	require.NoError(t, first.Commit(ctx))
	locked, err = postgres.TryLockSQLTx(ctx, second, "k")
	require.NoError(t, err)
	require.True(t, locked)
	require.NoError(t, second.Commit())

	_, err = postgres.TryLockSQLTx(ctx, second, "k")
	require.ErrorIs(t, err, locker.ErrUnavailable, "the transaction is over")
	_, err = postgres.TryLockTx(ctx, first, "")
	require.ErrorIs(t, err, locker.ErrInvalid)
	_, err = postgres.TryLockTx(ctx, nil, "k")
	require.ErrorIs(t, err, locker.ErrInvalid)
	_, err = postgres.TryLockSQLTx(ctx, nil, "k")
	require.ErrorIs(t, err, locker.ErrInvalid)
}

// The deadline of the context, and the session's lock_timeout, end the wait.
func TestTransactionGivesUp(t *testing.T) {
	t.Parallel()
	s, ctx := startServer(t), t.Context()
	for _, kind := range txKinds(s) {
		lock, end := kind.begin(t)
		require.NoError(t, lock(ctx, "k"))
		short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
		defer cancel()
		other, _ := kind.begin(t)
		start := time.Now()
		err := other(short, "k")
		require.ErrorIs(t, err, locker.ErrNotAcquired)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Less(t, time.Since(start), 5*time.Second)
		untouched, endUntouched := kind.begin(t)
		require.ErrorIs(t, untouched(short, "k"), locker.ErrNotAcquired, "the context had ended before")
		require.NoError(t, endUntouched(true))

		require.NoError(t, s.admin(ctx, `ALTER ROLE app SET lock_timeout = '50ms'`))
		other, endOther := kind.begin(t)
		err = other(ctx, "k")
		require.ErrorIs(t, err, locker.ErrNotAcquired)
		require.ErrorContains(t, err, "lock timeout")
		require.NoError(t, endOther(false))
		require.NoError(t, s.admin(ctx, `ALTER ROLE app RESET lock_timeout`))
		require.NoError(t, end(true))
	}
}

// A Locker and a transaction are in nobody's way; what is wrong is said.
func TestTransactionsAreNoLockers(t *testing.T) {
	t.Parallel()
	s, ctx := startServer(t), t.Context()
	l := newLocker(t, s.pool(t, ""))
	lease, err := l.TryLock(ctx, "k")
	require.NoError(t, err)
	for _, kind := range txKinds(s) {
		lock, end := kind.begin(t)
		require.NoError(t, lock(ctx, "k"), "a Locker holds the key")
		for _, key := range []string{"", "\xff", strings.Repeat("k", locker.MaxKeyLen+1)} {
			require.ErrorIs(t, lock(ctx, key), locker.ErrInvalid)
		}
		require.ErrorIs(t, lock(noContext, "k"), locker.ErrInvalid)
		require.NoError(t, end(true))
		err := lock(ctx, "k")
		require.ErrorIs(t, err, locker.ErrUnavailable, "the transaction is over")
		require.NotErrorIs(t, err, locker.ErrNotAcquired)
	}
	require.NoError(t, lease.Unlock(ctx))
	require.ErrorIs(t, postgres.LockTx(ctx, nil, "k"), locker.ErrInvalid)
	require.ErrorIs(t, postgres.LockSQLTx(ctx, nil, "k"), locker.ErrInvalid)
}

var noContext context.Context

// The server ends one of two transactions that wait for each other.
func TestTransactionsDeadlock(t *testing.T) {
	t.Parallel()
	s, ctx := startServer(t, "deadlock_timeout=50ms"), t.Context()
	kind := txKinds(s)[0]
	a, endA := kind.begin(t)
	b, endB := kind.begin(t)
	require.NoError(t, a(ctx, "1"))
	require.NoError(t, b(ctx, "2"))
	ends := make(chan error, 2)
	run := func(lock func(context.Context, string) error, end func(bool) error, key string) {
		err := lock(ctx, key)
		if failed := end(err == nil); err == nil {
			err = failed
		}
		ends <- err
	}
	go run(a, endA, "2")
	go run(b, endB, "1")
	one, two := <-ends, <-ends
	if one == nil {
		one, two = two, one
	}
	require.ErrorIs(t, one, locker.ErrUnavailable)
	require.ErrorContains(t, one, "try all of the transaction again")
	require.NoError(t, two)
}

func ExampleLockTx() {
	server, err := launch() // yours is there already
	if err != nil {
		log.Fatal(err)
	}
	defer server.Stop()

	ctx := context.Background()
	conn, err := pgx.Connect(ctx, server.url("app", "app"))
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close(ctx)
	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		if err := postgres.LockTx(ctx, tx, "orders/42"); err != nil {
			return err
		}
		fmt.Println("no other transaction has orders/42 until this one ends")
		return nil
	})
	fmt.Println(err)
	// Output:
	// no other transaction has orders/42 until this one ends
	// <nil>
}

func ExampleTryLockTx() {
	server, err := launch() // yours is there already
	if err != nil {
		log.Fatal(err)
	}
	defer server.Stop()

	ctx := context.Background()
	conn, err := pgx.Connect(ctx, server.url("app", "app"))
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close(ctx)
	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		locked, err := postgres.TryLockTx(ctx, tx, "report/today")
		switch {
		case err != nil:
			return err
		case !locked:
			fmt.Println("another transaction makes the report")
			return nil
		}
		fmt.Println("this transaction makes the report")
		return nil
	})
	fmt.Println(err)
	// Output:
	// this transaction makes the report
	// <nil>
}

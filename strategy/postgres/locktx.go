package postgres

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/distlock/locker"
	"github.com/distlock/locker/driver"
	"github.com/jackc/pgx/v5"
)

// LockTx waits until tx has key to itself, and returns nil. Every other transaction of the database that
// locks key waits until tx ends: by its commit, by its rollback, or with its connection. There is no TTL, no
// renewal and no token: the transaction that holds the lock is the one that writes, so that a late
// write cannot happen. A tx may lock a key again, and several keys; those who lock several lock them in the
// same order, or the server ends one of two that wait for each other. A rollback to a savepoint from before
// LockTx gives the lock up.
//
// It is an advisory lock (pg_advisory_xact_lock) on 64 bits of a hash of key: it needs no table and no
// permission, works through PgBouncer, and waiters are served first come, first served. It takes one
// statement, and waits in it.
//
// A transaction that LockTx has locked a key in does not exclude a Locker from that key, nor does a
// Locker exclude it: leave each key to one of the two, or lock the row of the Lockers' table, as the package
// comment shows.
//
// It is for READ COMMITTED, the default. A stricter transaction sees rows as they were before it waited.
//
// If ctx ends first, or the session's lock_timeout, the error matches [locker.ErrNotAcquired], and
// ctx's error if there is one. Other errors match [locker.ErrUnavailable], or [locker.ErrInvalid] for a
// key that is not 1 byte to 16 KiB of UTF-8. After an error tx can only be rolled back, and a ctx that ends
// closes the connection.
func LockTx(ctx context.Context, tx pgx.Tx, key string) error {
	return lockTx(ctx, key, tx != nil, func(hash int64) error {
		_, err := tx.Exec(ctx, lockTxSQL, hash)
		return err
	})
}

// LockSQLTx is [LockTx] for a transaction of database/sql, whatever its driver for PostgreSQL.
func LockSQLTx(ctx context.Context, tx *sql.Tx, key string) error {
	return lockTx(ctx, key, tx != nil, func(hash int64) error {
		_, err := tx.ExecContext(ctx, lockTxSQL, hash)
		return err
	})
}

// TryLockTx is [LockTx] without a wait: it returns true when tx has key to itself, as after LockTx, and false when another
// transaction has key or waits for it. After false tx goes on: it can write other rows, and commit. TryLockTx takes one statement
// (pg_try_advisory_xact_lock). Its errors are those of LockTx. It is for READ COMMITTED, too: a stricter transaction sees rows as
// they were at its first statement.
func TryLockTx(ctx context.Context, tx pgx.Tx, key string) (locked bool, err error) {
	err = lockTx(ctx, key, tx != nil, func(hash int64) error { return tx.QueryRow(ctx, tryLockTxSQL, hash).Scan(&locked) })
	return locked && err == nil, err
}

// TryLockSQLTx is [TryLockTx] for a transaction of database/sql, whatever its driver for PostgreSQL.
func TryLockSQLTx(ctx context.Context, tx *sql.Tx, key string) (locked bool, err error) {
	err = lockTx(ctx, key, tx != nil, func(hash int64) error { return tx.QueryRowContext(ctx, tryLockTxSQL, hash).Scan(&locked) })
	return locked && err == nil, err
}

const (
	lockTxSQL    = `SELECT pg_advisory_xact_lock($1)`
	tryLockTxSQL = `SELECT pg_try_advisory_xact_lock($1)`
)

func lockTx(ctx context.Context, key string, given bool, exec func(hash int64) error) error {
	failed := func(why ...any) error {
		return fmt.Errorf("locker: postgres: lock %.80q in a transaction: %w: %w", append([]any{key}, why...)...)
	}
	switch {
	case ctx == nil:
		return failed(locker.ErrInvalid, errors.New("want a context, got nil"))
	case !given:
		return failed(locker.ErrInvalid, errors.New("want a transaction, got nil"))
	case key == "" || len(key) > locker.MaxKeyLen || !utf8.ValidString(key):
		return failed(locker.ErrInvalid, fmt.Errorf("want a key of 1 to %d bytes of UTF-8, got %d bytes", locker.MaxKeyLen, len(key)))
	case ctx.Err() != nil:
		return failed(locker.ErrNotAcquired, ctx.Err())
	}
	hash := sha256.Sum256([]byte("locker tx " + key))
	err := exec(int64(binary.BigEndian.Uint64(hash[:])))
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return failed(locker.ErrNotAcquired, ctx.Err())
	case hasState(err, lockNotAvailable):
		return failed(locker.ErrNotAcquired, err)
	case hasState(err, deadlockDetected):
		err = fmt.Errorf("%w (try all of the transaction again)", err)
	}
	return failed(locker.ErrUnavailable, &driver.StoreError{Err: err, Permanent: isPermanent(err)})
}

// hasState is hasCode for the errors of any driver that shows an SQLSTATE.
func hasState(err error, code string) bool {
	var e interface{ SQLState() string }
	return errors.As(err, &e) && e.SQLState() == code
}

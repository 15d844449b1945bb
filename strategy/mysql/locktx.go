package mysql

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/distlock/locker"
	"github.com/distlock/locker/driver"
)

// LockTx waits until tx has key to itself, and returns nil. Every other transaction that locks key
// waits until tx ends: by its commit, by its rollback, or with its connection. There is no TTL, no
// renewal and no token: the transaction that holds the lock is the one that writes, so that a late
// write cannot happen. A tx may lock a key again, and several keys; those who lock several lock them in the
// same order, or the server ends one of two that wait for each other.
//
// Be ready to repeat the whole transaction: the server may end it by a deadlock (1213), or since a row has changed
// after its snapshot (1020, MariaDB from 11.6 on), also when it locks one key. That happens to the waiters of a key
// which nobody has locked for ten minutes or more, when the first transaction that locks it is rolled back: one of the
// waiters goes on, and the others fail.
//
// There is no TryLockTx, which strategy/postgres has: the first transaction that locks a key inserts the key's row, and
// an INSERT cannot be kept from waiting for another transaction (NOWAIT is for SELECT, and innodb_lock_wait_timeout is 1 s
// at least in MySQL).
//
// It locks a row of its own in the table locker_locks of tx's database, which has to exist:
// [Schema] makes it, and so does the first Lock. It takes one statement, and waits in it.
//
// A transaction that LockTx has locked a key in does not exclude a Locker from that key, nor does a
// Locker exclude it: leave each key to one of the two.
//
// Call it before tx reads what the key protects. At REPEATABLE READ, the server's default, a
// transaction goes on seeing the rows as they were at its first read.
//
// If ctx ends first, or the server's innodb_lock_wait_timeout (50 s by default), the error matches
// [locker.ErrNotAcquired], and ctx's error if there is one. Other errors match
// [locker.ErrUnavailable], or [locker.ErrInvalid] for a key that is not 1 byte to 16 KiB of UTF-8.
// Roll tx back after an error: the server may have done so, and a ctx that ends closes the connection.
func LockTx(ctx context.Context, tx *sql.Tx, key string) error {
	failed := func(why ...any) error {
		return fmt.Errorf("locker: mysql: lock %.80q in a transaction: %w: %w", append([]any{key}, why...)...)
	}
	switch {
	case ctx == nil:
		return failed(locker.ErrInvalid, errors.New("want a context, got nil"))
	case tx == nil:
		return failed(locker.ErrInvalid, errors.New("want a transaction, got nil"))
	case key == "" || len(key) > locker.MaxKeyLen || !utf8.ValidString(key):
		return failed(locker.ErrInvalid, fmt.Errorf("want a key of 1 to %d bytes of UTF-8, got %d bytes", locker.MaxKeyLen, len(key)))
	case ctx.Err() != nil:
		return failed(locker.ErrNotAcquired, ctx.Err())
	}
	// No key of a Locker is hashed with this before it, which is not UTF-8.
	_, err := tx.ExecContext(ctx, fmt.Sprintf(ofDefault().lock, sha256.Sum256([]byte("\xff"+key)), key))
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return failed(locker.ErrNotAcquired, ctx.Err())
	case hasNumber(err, lockWaitTimeout):
		return failed(locker.ErrNotAcquired, err)
	case hasNumber(err, rolledBack...):
		err = fmt.Errorf("%w (the server has rolled the transaction back: try all of it again)", err)
	case hasNumber(err, noSuchTable):
		err = fmt.Errorf("%w (the SQL of mysql.Schema makes the table; to do it here would commit the transaction)", err)
	}
	return failed(locker.ErrUnavailable, &driver.StoreError{Err: err, Permanent: isPermanent(err)})
}

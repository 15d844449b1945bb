// Package sqlfence checks fencing tokens in the SQL transaction of the write. It works with
// PostgreSQL, MySQL or MariaDB, and SQLite by database/sql, and with PostgreSQL by pgx, too ([Pgx]).
// It imports no driver.
//
// A table has a row for each key with the greatest token that was admitted. [Table.AdmitTx] compares
// and raises it, and the transaction that does so also writes the data: the two are committed
// together, or not at all.
//
//	fences, err := sqlfence.New(sqlfence.PostgreSQL, "")
//	...
//	tx, err := db.BeginTx(ctx, nil)
//	...
//	defer tx.Rollback()
//	if err := fences.AdmitTx(ctx, tx, lease.Key(), lease.Token()); err != nil {
//		return err // errors.Is(err, fence.ErrStale): a later owner was here
//	}
//	... // read and write
//	return tx.Commit()
//
// # Why it is safe
//
// AdmitTx locks the row of the key until the transaction ends. So of two owners' transactions the
// second one waits until the first one has ended, and compares its token with what the first one
// has committed. Call AdmitTx first, before anything is read: then what the transaction reads
// cannot be changed by an earlier owner before it writes.
//
// An owner that is paused within its transaction keeps the row, and later owners wait: nothing is
// written late, but they wait until the server ends that transaction. Give it a limit
// (PostgreSQL: idle_in_transaction_session_timeout; MySQL and MariaDB: wait_timeout).
//
// If the reply to COMMIT is lost, the transaction may be run again with the same token: it is
// admitted again, unless a later owner was here. What it writes may have been written already, so
// let it read first. A transaction that is rolled back leaves the token as it was.
// Errors that ask for the transaction to be run again (a serialization failure, a deadlock,
// SQLITE_BUSY) are returned in the driver's words, wrapped.
//
// # The table
//
// [Table.Schema] creates it; no row is removed by itself. The guard and the data belong in one
// database: then a backup that is restored, or a failover that loses commits, loses both alike.
// A table that was lost or emptied on its own admits whoever comes first, a late writer as well.
// With MySQL the table of the data has to be one with transactions, too (InnoDB).
// [Table.Prune] removes the rows of keys that are not used any more.
package sqlfence

import (
	"cmp"
	"context"
	"crypto/sha256"
	"database/sql"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/distlock/locker/fence"
)

// Dialect is the SQL that a server speaks.
type Dialect int

// The dialects.
const (
	PostgreSQL Dialect = 1 + iota // 9.5 or later
	MySQL                         // 5.7 or later, and MariaDB 10.3 or later
	SQLite                        // 3.24 or later
)

// DefaultTable is the name of the table where none is given.
const DefaultTable = "locker_fences"

// Table is the table of greatest tokens. It may be used by many goroutines.
type Table struct{ dialect }

// dialect has its statements, with {table} for the name of the table.
type dialect struct {
	quote  string // around a name
	schema string
	ensure string // with id and name, if it is not empty
	admit  string // changes a row if the token is admitted
	old    string // ids beyond the first argument, in their order, of rows older than the second one's seconds
	prune  string // removes the row with an id if it is older than so many seconds
}

// id is the SHA-256 of the key, as no index takes 16 KiB; name is the key, for people. Both
// are bytes: text would fold case, ignore blanks at the end, or refuse NUL. admitted is in Unix
// seconds of the server's clock, and for Prune alone.
var dialects = map[Dialect]dialect{
	PostgreSQL: {
		quote: `"`,
		schema: `CREATE TABLE IF NOT EXISTS {table} (
	id bytea PRIMARY KEY, name bytea NOT NULL, token bigint NOT NULL, admitted bigint NOT NULL
)`,
		// It waits for a transaction that has the row, and judges what that has committed: at READ
		// COMMITTED. Above it a change since the snapshot is an error.
		admit: `INSERT INTO {table} AS f (id, name, token, admitted)
VALUES ($1, $2, $3, extract(epoch FROM clock_timestamp())::bigint)
ON CONFLICT (id) DO UPDATE SET token = excluded.token, admitted = excluded.admitted WHERE f.token <= excluded.token`,
		old: `SELECT id FROM {table} WHERE id > $1 AND admitted < extract(epoch FROM clock_timestamp())::bigint - $2::bigint
ORDER BY id LIMIT 1000`,
		prune: `DELETE FROM {table} WHERE id = $1 AND admitted < extract(epoch FROM clock_timestamp())::bigint - $2::bigint`,
	},
	MySQL: {
		quote: "`",
		schema: `CREATE TABLE IF NOT EXISTS {table} (
	id BINARY(32) PRIMARY KEY, name VARBINARY(16384) NOT NULL, token BIGINT NOT NULL, admitted BIGINT NOT NULL,
	admits BIGINT NOT NULL
) ENGINE=InnoDB`, // others may have no transactions
		// It makes the row if need be, and locks it: an UPDATE that finds no row locks the gap, and
		// two of those wait for each other when they insert.
		ensure: `INSERT INTO {table} (id, name, token, admitted, admits)
VALUES (?, ?, 0, UNIX_TIMESTAMP(), 0) ON DUPLICATE KEY UPDATE id = id`,
		// An UPDATE judges what is committed, whatever the snapshot shows. MySQL does not count a row
		// that stays as it is, as one with an equal token would: admits changes each time.
		admit: `UPDATE {table} SET token = ?, admitted = UNIX_TIMESTAMP(), admits = admits + 1 WHERE id = ? AND token <= ?`,
		old:   `SELECT id FROM {table} WHERE id > ? AND admitted < UNIX_TIMESTAMP() - ? ORDER BY id LIMIT 1000`,
		prune: `DELETE FROM {table} WHERE id = ? AND admitted < UNIX_TIMESTAMP() - ?`,
	},
	SQLite: {
		quote: `"`,
		schema: `CREATE TABLE IF NOT EXISTS {table} (
	id BLOB PRIMARY KEY, name BLOB NOT NULL, token INTEGER NOT NULL, admitted INTEGER NOT NULL
)`,
		admit: `INSERT INTO {table} AS f (id, name, token, admitted)
VALUES (?, ?, ?, CAST(strftime('%s', 'now') AS INTEGER))
ON CONFLICT (id) DO UPDATE SET token = excluded.token, admitted = excluded.admitted WHERE f.token <= excluded.token`,
		old:   `SELECT id FROM {table} WHERE id > ? AND admitted < CAST(strftime('%s', 'now') AS INTEGER) - ? ORDER BY id LIMIT 1000`,
		prune: `DELETE FROM {table} WHERE id = ? AND admitted < CAST(strftime('%s', 'now') AS INTEGER) - ?`,
	},
}

var tableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,62}(\.[A-Za-z_][A-Za-z0-9_]{0,62})?$`)

// New returns the Table of that name, "" for [DefaultTable]. A name is letters, digits and _,
// with a schema and a dot before it if need be, in the case that it is written in. New sends nothing.
func New(d Dialect, table string) (*Table, error) {
	t, known := dialects[d]
	if !known {
		return nil, fmt.Errorf("sqlfence: %w: want PostgreSQL, MySQL or SQLite, got Dialect(%d)", fence.ErrInvalid, d)
	}
	table = cmp.Or(table, DefaultTable)
	if !tableName.MatchString(table) {
		return nil, fmt.Errorf("sqlfence: %w: want a table named by letters, digits and _, got %q", fence.ErrInvalid, table)
	}
	quoted := t.quote + strings.ReplaceAll(table, ".", t.quote+"."+t.quote) + t.quote
	for _, statement := range []*string{&t.schema, &t.ensure, &t.admit, &t.old, &t.prune} {
		*statement = strings.ReplaceAll(*statement, "{table}", quoted)
	}
	return &Table{t}, nil
}

// Schema returns the statement that creates the table if it is not there.
func (t *Table) Schema() string { return t.schema }

// Tx is an open transaction: a [*sql.Tx], or what [Pgx] makes of a pgx.Tx. A database or a
// connection is none: by it the check would be a transaction of its own.
type Tx interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	Commit() error
	Rollback() error
}

// AdmitTx admits token for key within tx, and locks the key's row until tx ends. It fails with
// [fence.ErrStale] if a greater token was admitted, and with [fence.ErrInvalid] for a bad key or
// token; after any error roll tx back. It takes one command, with MySQL two.
func (t *Table) AdmitTx(ctx context.Context, tx Tx, key string, token int64) error {
	if err := fence.Validate(key, token); err != nil {
		return err
	}
	switch {
	case t == nil || t.admit == "":
		return fmt.Errorf("sqlfence: %w: want a Table of New, got an empty one", fence.ErrInvalid)
	case tx == nil:
		return fmt.Errorf("sqlfence: %w: want an open transaction, got nil", fence.ErrInvalid)
	}
	id := sha256.Sum256([]byte(key))
	args := []any{id[:], []byte(key), token}
	if t.ensure != "" {
		if _, err := tx.ExecContext(ctx, t.ensure, args[:2]...); err != nil {
			return fmt.Errorf("sqlfence: key %s: %w", fence.Quote(key), err)
		}
		args = []any{token, id[:], token}
	}
	changed, err := affected(tx.ExecContext(ctx, t.admit, args...))
	switch {
	case err != nil:
		return fmt.Errorf("sqlfence: key %s: %w", fence.Quote(key), err)
	case changed == 0:
		return &fence.StaleError{Key: key, Token: token}
	}
	return nil
}

func affected(res sql.Result, err error) (int64, error) {
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}

// Guard returns a Guard that admits each token in a transaction of its own. A write that follows
// may be late, as it is not checked in the step that writes: use [Table.AdmitTx] where the data is in db.
func (t *Table) Guard(db *sql.DB) fence.Guard { return guard{t, db} }

type guard struct {
	table *Table
	db    *sql.DB
}

func (g guard) Admit(ctx context.Context, key string, token int64) error {
	if g.db == nil {
		return fmt.Errorf("sqlfence: %w: want a database, got nil", fence.ErrInvalid)
	}
	tx, err := g.db.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("sqlfence: key %s: %w", fence.Quote(key), err)
	}
	defer func() { _ = tx.Rollback() }() // after Commit it does nothing
	if err := g.table.AdmitTx(ctx, tx, key, token); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("sqlfence: key %s: %w", fence.Quote(key), err)
	}
	return nil
}

// Prune removes the rows of keys for which no token was admitted for age, by the server's clock, and returns
// how many. Afterwards a writer that is late by more than age is admitted: want age to be longer than any
// process may be paused, and any message be under way; days, not minutes. It is at least an hour. Prune reads
// the whole table, and removes each row by a statement and a transaction of its own: MySQL locks each row that
// a DELETE reads until the transaction ends, and writers of all keys would wait. If Prune fails, it has removed
// as many rows as it returns.
func (t *Table) Prune(ctx context.Context, db *sql.DB, age time.Duration) (int64, error) {
	if age < time.Hour {
		return 0, fmt.Errorf("sqlfence: %w: want an age of an hour or more, got %v", fence.ErrInvalid, age)
	}
	if t == nil || t.prune == "" || db == nil {
		return 0, fmt.Errorf("sqlfence: %w: want a Table of New and a database, got an empty or no one", fence.ErrInvalid)
	}
	var pruned int64
	for after := []byte{}; ; {
		ids, err := t.olderThan(ctx, db, after, age)
		for _, id := range ids {
			var n int64
			if n, err = affected(db.ExecContext(ctx, t.prune, id, int64(age/time.Second))); err != nil {
				break
			}
			pruned, after = pruned+n, id
		}
		if err != nil {
			return pruned, fmt.Errorf("sqlfence: prune: %w", err)
		}
		if len(ids) == 0 {
			return pruned, nil
		}
	}
}

// olderThan returns some ids of rows of that age, those that follow after.
func (t *Table) olderThan(ctx context.Context, db *sql.DB, after []byte, age time.Duration) (ids [][]byte, err error) {
	rows, err := db.QueryContext(ctx, t.old, after, int64(age/time.Second))
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var id []byte
		if err := rows.Scan(&id); err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return ids, rows.Err()
}

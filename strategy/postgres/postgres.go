package postgres

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/maphash"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/driver"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// keep is how long a row is kept after its lease, for its token; or two TTLs, if that
// is longer.
const keep = 10 * time.Minute

// New makes a Locker on pool, which stays the caller's. It asks the server nothing yet.
func New(pool *pgxpool.Pool, opts ...locker.Option) (*locker.Client, error) {
	if pool == nil {
		return nil, fmt.Errorf("locker: %w: the pool is nil", driver.ErrInvalid)
	}
	return locker.New(NewDriver(pool), opts...)
}

// WithTable names the table, with or without its schema: "locks", "app.locks". All that
// share locks name the same one; without a schema search_path decides. A name is 1 to 63
// bytes without dots. Default "public.locker_locks".
func WithTable(name string) locker.Option { return locker.WithDriverOption(table(name)) }

// WithoutNotify opens no connection to listen for releases: waiters poll every 10 to
// 100 ms. It is for a pool of connections to PgBouncer. The releases of this Locker
// wake others nevertheless.
func WithoutNotify() locker.Option { return locker.WithDriverOption(withoutNotify{}) }

// Schema returns the SQL that makes the table of a name as [WithTable] takes it, with its trigger, whose function has
// "_hash" behind that name, and the table of permits beside it, whose name has "_permits" behind it. It does nothing to
// one that exists.
func Schema(name string) (string, error) {
	sql, err := newStatements(name)
	return sql.schema, err
}

type (
	table         string
	withoutNotify struct{}
)

// pgDriver is a driver.Driver, driver.Configurer, driver.Notifier, driver.Inspector and driver.PermitKeeper.
type pgDriver struct {
	pool     *pgxpool.Pool
	sql      statements
	listener listener
	deaf     atomic.Bool   // no release will wake a Watch
	attempts chan struct{} // so many of Acquire may be at the pool
	log      *slog.Logger
	pace     pace
	freed    freed
	releases atomic.Int64
}

// NewDriver makes the driver that New gives to its Locker, for those who wrap it.
func NewDriver(pool *pgxpool.Pool) driver.Driver {
	sql, _ := newStatements("public.locker_locks")
	return &pgDriver{pool: pool, sql: sql, listener: listener{pool: pool}, log: slog.New(slog.DiscardHandler), attempts: make(chan struct{}, pool.Config().MaxConns), freed: freed{seed: maphash.MakeSeed()}}
}

// Name implements driver.Driver.
func (*pgDriver) Name() string { return "postgres" }

// Configure implements driver.Configurer.
func (d *pgDriver) Configure(cfg driver.Config) (driver.Settings, error) {
	if cfg.Logger != nil {
		d.log = cfg.Logger
	}
	for _, opt := range cfg.Options {
		switch opt := opt.(type) {
		case table:
			var err error
			if d.sql, err = newStatements(string(opt)); err != nil {
				return driver.Settings{}, err
			}
		case withoutNotify:
			d.deaf.Store(true)
		default:
			return driver.Settings{}, fmt.Errorf("%w: postgres has no option %T", driver.ErrInvalid, opt)
		}
	}
	return driver.Settings{NamesHolders: true}, nil
}

// Acquire implements driver.Driver. However many wait, a release or a renewal has no more
// attempts before it than the pool has connections: the pool serves in turn.
func (d *pgDriver) Acquire(ctx context.Context, req driver.Request) (driver.Answer, error) {
	select {
	case d.attempts <- struct{}{}:
		defer func() { <-d.attempts }()
	case <-ctx.Done():
		return driver.Answer{}, storeError(ctx.Err(), true)
	}
	attempt := d.attempt
	if req.Limit > 0 {
		attempt = d.acquirePermits
	}
	var a driver.Answer
	err := untilKept(ctx, func() (err error) {
		a, err = attempt(ctx, req)
		return err
	})
	return a, err
}

// mostTries is how often a statement is sent that the server rolls back.
const mostTries = 10

// untilKept runs f again while the server rolls it back: it was not applied, and shows nothing about the key. f begins anew each
// time: rows come before the COMMIT that fails.
func untilKept(ctx context.Context, f func() error) error {
	for try := 1; ; try++ {
		err := f()
		if !isRolledBack(err) && !isElsewhere(err) || try == mostTries || ctx.Err() != nil {
			return err
		}
	}
}

// acquireArgs returns the arguments that all statements that acquire have in common.
func acquireArgs(req driver.Request) []any {
	want := 0
	if req.Fencing {
		want = max(req.Tokens, 1)
	}
	return []any{[]byte(req.Key), []byte(req.ID), []byte(req.Owner), req.TTL.Milliseconds(), forgetAfter(req.TTL), want}
}

func (d *pgDriver) attempt(ctx context.Context, req driver.Request) (driver.Answer, error) {
	var a driver.Answer
	var first, last, remaining int64
	var owner unhex
	var permits bool
	var err error
	args := acquireArgs(req)
	if d.freed.take(req.Key) {
		_, err = d.each(ctx, d.sql.again, func(rows pgx.Rows) error {
			a.Granted = true
			return rows.Scan(&first, &last)
		}, args...)
	}
	if err == nil && !a.Granted {
		_, err = d.each(ctx, d.sql.acquire, func(rows pgx.Rows) error {
			return rows.Scan(&a.Granted, &first, &last, &remaining, &owner, &permits)
		}, args...)
	}
	if err == nil && permits {
		if instead, found, err := d.lockInstead(ctx, req); found || err != nil {
			return instead, err
		}
		owner = "" // it was a bid
	}
	switch {
	case hasCode(err, lockNotAvailable) && !isElsewhere(err):
		return driver.Answer{NoWakeUp: d.deaf.Load()}, nil
	case err != nil:
		return driver.Answer{}, err
	case !a.Granted:
		a.Remaining, a.Owner = time.Duration(remaining)*time.Millisecond, string(owner)
		a.NoWakeUp = d.deaf.Load()
	case first > 0:
		a.Token, a.Tokens = first, int(last-first+1)
	}
	return a, nil
}

var (
	errLost = fmt.Errorf("the claim does not hold the key: %w", driver.ErrLost)
	errBusy = &driver.StoreError{Err: errors.New("the row is locked by another transaction"), NotApplied: true}
	// errOvertaken: other transactions have deleted what the statement has read, each time.
	errOvertaken = &driver.StoreError{Err: errors.New("the rows of the key were deleted meanwhile"), NotApplied: true}
)

const (
	// sweepEvery: the first of so many releases of a Locker deletes rows that are no longer needed.
	sweepEvery = 16
	// mostForgotten is the longest TTL that a key may stay locked for because a server that
	// crashed has forgotten the release.
	mostForgotten = time.Minute
)

// Release implements driver.Driver.
func (d *pgDriver) Release(ctx context.Context, c driver.Claim) error {
	if c.Limit > 0 {
		return d.releasePermits(ctx, c)
	}
	sql := d.sql.free
	if sweeps := d.releases.Add(1)%sweepEvery == 1; sweeps || c.Token == 0 || c.TTL > mostForgotten {
		sql = d.sql.release
	}
	err := d.release(ctx, sql, c.Key, c.ID)
	if err == nil && c.Token > 0 {
		d.freed.note(c.Key)
	}
	return err
}

// release does so without NOTIFY where the server's queue for that is full: waiters look once
// a second.
func (d *pgDriver) release(ctx context.Context, sql, key, id string) error {
	err := d.one(ctx, sql, []byte(key), []byte(id))
	if hasCode(err, limitExceeded) {
		return d.one(ctx, d.sql.quietly, []byte(key), []byte(id))
	}
	return err
}

// one runs a statement about one claim, which has a row if that holds the key.
func (d *pgDriver) one(ctx context.Context, sql string, args ...any) error {
	return untilKept(ctx, func() error {
		rows, err := d.each(ctx, sql, func(pgx.Rows) error { return nil }, args...)
		if err == nil && rows == 0 {
			return errLost
		}
		return err
	})
}

// Close implements driver.Driver. The pool is the caller's.
func (d *pgDriver) Close() error {
	d.listener.close()
	return nil
}

// each runs a statement on a connection of the pool and goes through its rows. Where the
// table is missing it makes it, and runs the statement, which did nothing, again.
func (d *pgDriver) each(ctx context.Context, sql string, row func(pgx.Rows) error, args ...any) (n int, err error) {
	conn, err := d.pool.Acquire(ctx)
	if err != nil {
		return 0, storeError(err, true)
	}
	defer conn.Release()
	run := func() error {
		rows, err := conn.Query(ctx, sql, args...)
		if err != nil {
			return err
		}
		defer rows.Close()
		for n = 0; rows.Next(); n++ {
			if err := row(rows); err != nil {
				return err
			}
		}
		return rows.Err() // of the commit, too: rows come before it
	}
	sent := time.Now()
	if err = run(); err == nil && (sql == d.sql.acquire || sql == d.sql.again) {
		d.pace.note(time.Since(sent), d.log)
	}
	if hasCode(err, undefinedTable) {
		_, failed := conn.Conn().PgConn().Exec(ctx, d.sql.schema).ReadAll()
		if err = run(); hasCode(err, undefinedTable) && failed != nil {
			err = fmt.Errorf("the table %s does not exist and could not be created (%v): let a role that may create it run "+
				"the SQL of postgres.Schema once, and grant this role SELECT, INSERT, UPDATE and DELETE on it: %w", d.sql.missing(err), failed, err)
		}
	}
	if hasCode(err, undefinedColumn) {
		err = fmt.Errorf("a table of the Locker has other columns than the SQL of postgres.Schema makes: %w", err)
	}
	if hasCode(err, readOnly) {
		d.leave(conn.Conn())
		err = fmt.Errorf("the server takes no writes (is it a standby since a fail-over? This connection is closed, and the next one looks for a primary): %w", err)
	}
	return n, storeError(err, false)
}

// leave closes a connection to a server that is read-only, and that of the listener, which is
// likely to be on the same one: they might stay open for ever, while the next ones reach the
// primary.
func (d *pgDriver) leave(conn *pgx.Conn) {
	hangUp(conn)
	d.listener.hangUp()
}

// unhex is bytes that a statement encodes as hex: what it is without depends on the
// session's bytea_output.
type unhex string

// Scan implements sql.Scanner.
func (u *unhex) Scan(src any) error {
	s, _ := src.(string)
	b, err := hex.DecodeString(s)
	*u = unhex(b)
	return err
}

// forgetAfter returns after how many milliseconds a row is no longer needed, if its lease
// is not renewed.
func forgetAfter(ttl time.Duration) int64 { return (ttl + max(2*ttl, keep)).Milliseconds() }

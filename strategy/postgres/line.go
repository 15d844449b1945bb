package postgres

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/distlock/locker/driver"
)

// lineDriver is a prototype: waiters of all processes are served in order of arrival. A waiting
// Locker has a row per key in a table of places; a release names the first of them in the key's row.
type lineDriver struct {
	*pgDriver
	wait, free, leave string
	create, known     sync.Once
	newID             func() string
	lineSchema        string
}

// NewLineDriver is NewDriver with a line.
func NewLineDriver(pool *pgxpool.Pool) driver.Driver {
	d := &lineDriver{pgDriver: NewDriver(pool).(*pgDriver)}
	d.fill("public.locker_locks", "public.locker_locks_line")
	return d
}

func (d *lineDriver) fill(table, line string) {
	r := filler(table, table+"_permits")
	read := func(name string) string {
		return strings.NewReplacer("{line}", line, "{table_line}", line).Replace(r.Replace(text(name)))
	}
	d.wait, d.free, d.lineSchema = read("linewait"), read("linefree"), read("line")
	d.leave = "DELETE FROM " + line + " WHERE hash = sha256($1) AND locker = $2"
}

func (d *lineDriver) Acquire(ctx context.Context, req driver.Request) (a driver.Answer, err error) {
	locker, ok := driver.LockerOf(req.ID)
	if !req.Wait || req.Limit > 0 || !ok {
		return d.pgDriver.Acquire(ctx, req)
	}
	d.create.Do(func() { _, err = d.pool.Exec(ctx, d.lineSchema, pgx.QueryExecModeSimpleProtocol) })
	if err != nil {
		return a, storeError(err, false)
	}
	select {
	case d.attempts <- struct{}{}:
		defer func() { <-d.attempts }()
	case <-ctx.Done():
		return a, storeError(ctx.Err(), true)
	}
	var first, last, remaining int64
	var owner unhex
	n, err := d.each(ctx, d.wait, func(rows pgx.Rows) error {
		return rows.Scan(&a.Granted, &first, &last, &remaining, &owner, nil)
	}, append(acquireArgs(req), locker)...)
	switch {
	case err != nil:
		return driver.Answer{}, err
	case n == 0: // no row
		return d.attempt(ctx, req)
	case !a.Granted:
		a.Remaining, a.Owner = time.Duration(remaining)*time.Millisecond, string(owner)
	case first > 0:
		a.Token, a.Tokens = first, int(last-first+1)
	}
	return a, nil
}

func (d *lineDriver) Release(ctx context.Context, c driver.Claim) error {
	if c.Limit > 0 {
		return d.pgDriver.Release(ctx, c)
	}
	d.create.Do(func() { _, _ = d.pool.Exec(ctx, d.lineSchema, pgx.QueryExecModeSimpleProtocol) })
	err := d.one(ctx, d.free, []byte(c.Key), []byte(c.ID))
	if err == nil && c.Token > 0 {
		d.freed.note(c.Key)
	}
	return err
}

// lineWatch wakes for releases that name no Locker, or this one.
type lineWatch struct {
	driver.Watch
	d   *lineDriver
	key string
}

func (d *lineDriver) Configure(cfg driver.Config) (driver.Settings, error) {
	d.newID = cfg.NewID
	return d.pgDriver.Configure(cfg)
}

func (d *lineDriver) Watch(ctx context.Context, key string) (driver.Watch, error) {
	d.known.Do(func() { d.locker, _ = driver.LockerOf(d.newID()); d.listener.own = d.locker })
	w, err := d.pgDriver.Watch(ctx, key)
	if err != nil {
		return nil, err
	}
	return &lineWatch{w, d, key}, nil
}

// Close gives up the place, and the turn if the key is kept for this Locker.
func (w *lineWatch) Close() {
	w.Watch.Close()
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_, _ = w.d.pool.Exec(ctx, w.d.leave, []byte(w.key), w.d.locker)
		_ = w.d.one(ctx, w.d.free, []byte(w.key), []byte("next "+w.d.locker))
	}()
}

package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	_ "modernc.org/sqlite"

	"github.com/distlock/locker/fence/sqlfence"
)

// stock is a table with one row for each product, beside the table of the greatest fencing
// tokens.
type stock struct {
	db     *sql.DB
	fences *sqlfence.Table
}

const schema = `CREATE TABLE stock (
	product TEXT    PRIMARY KEY,
	units   INTEGER NOT NULL
)`

// newStock makes the tables in a database in memory, with one product.
func newStock(ctx context.Context, product string, units int) (stock, error) {
	db, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		return stock{}, err
	}
	db.SetMaxOpenConns(1) // each connection to :memory: is a database of its own
	fences, err := sqlfence.New(sqlfence.SQLite, "")
	for _, create := range []string{schema, fences.Schema()} {
		if err == nil {
			_, err = db.ExecContext(ctx, create)
		}
	}
	if err == nil {
		_, err = db.ExecContext(ctx, `INSERT INTO stock (product, units) VALUES (?, ?)`, product, units)
	}
	if err != nil {
		return stock{}, errors.Join(err, db.Close())
	}
	return stock{db, fences}, nil
}

func (s stock) close() error { return s.db.Close() }

// access is how a worker reads and writes the table.
type access struct {
	read  func(s stock, ctx context.Context, product string, token int64) (units int, err error)
	write func(s stock, ctx context.Context, product string, units int, token int64) error
}

var (
	unchecked = access{stock.readUnchecked, stock.writeUnchecked}
	fenced    = access{stock.readFenced, stock.writeFenced}
)

// readUnchecked and writeUnchecked leave the token alone, as most programs do.
func (s stock) readUnchecked(ctx context.Context, product string, _ int64) (units int, err error) {
	return read(ctx, s.db, product)
}

func (s stock) writeUnchecked(ctx context.Context, product string, units int, _ int64) error {
	return update(ctx, s.db, product, units)
}

// readFenced leaves its token with the product as it reads: from here on earlier owners are
// refused, also one that writes before this section does.
func (s stock) readFenced(ctx context.Context, product string, token int64) (units int, err error) {
	err = s.admitted(ctx, product, token, func(tx *sql.Tx) error {
		units, err = read(ctx, tx, product)
		return err
	})
	return units, err
}

// writeFenced writes unless a later owner was here.
func (s stock) writeFenced(ctx context.Context, product string, units int, token int64) error {
	return s.admitted(ctx, product, token, func(tx *sql.Tx) error {
		return update(ctx, tx, product, units)
	})
}

// admitted does what f does, in the transaction that compares tokens: a check before it would
// leave room for a pause between the two.
func (s stock) admitted(ctx context.Context, product string, token int64, f func(*sql.Tx) error) error {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // after Commit it does nothing
	if err := s.fences.AdmitTx(ctx, tx, product, token); err != nil {
		return err
	}
	if err := f(tx); err != nil {
		return err
	}
	return tx.Commit()
}

// queries is a *sql.DB or a *sql.Tx.
type queries interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

func read(ctx context.Context, q queries, product string) (units int, err error) {
	err = q.QueryRowContext(ctx, `SELECT units FROM stock WHERE product = ?`, product).Scan(&units)
	return units, err
}

func update(ctx context.Context, q queries, product string, units int) error {
	res, err := q.ExecContext(ctx, `UPDATE stock SET units = ? WHERE product = ?`, units, product)
	if err != nil {
		return err
	}
	if changed, err := res.RowsAffected(); err != nil || changed == 1 {
		return err
	}
	return fmt.Errorf("there is no product %q: %w", product, sql.ErrNoRows)
}

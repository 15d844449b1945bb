package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	_ "modernc.org/sqlite"
)

// errStale is the answer to a writer whose fencing token is smaller than that of the row.
var errStale = errors.New("refused: the row has a greater fencing token")

// stock is a table with one row for each product. The column token is the greatest
// fencing token that has written the row.
type stock struct{ db *sql.DB }

const schema = `CREATE TABLE stock (
	product TEXT    PRIMARY KEY,
	units   INTEGER NOT NULL,
	token   INTEGER NOT NULL DEFAULT 0
)`

// newStock makes the table in a database in memory, with one product.
func newStock(ctx context.Context, product string, units int) (stock, error) {
	db, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		return stock{}, err
	}
	db.SetMaxOpenConns(1) // each connection to :memory: is a database of its own
	s := stock{db}
	if _, err = db.ExecContext(ctx, schema); err == nil {
		_, err = db.ExecContext(ctx, `INSERT INTO stock (product, units) VALUES (?, ?)`, product, units)
	}
	if err != nil {
		return stock{}, errors.Join(err, db.Close())
	}
	return s, nil
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
	units, _, err = s.row(ctx, product)
	return units, err
}

func (s stock) writeUnchecked(ctx context.Context, product string, units int, _ int64) error {
	return s.update(ctx, product, `UPDATE stock SET units = ? WHERE product = ?`, units, product)
}

// readFenced reads and leaves its token in the row: from here on earlier owners are refused,
// also one that writes before this section does.
func (s stock) readFenced(ctx context.Context, product string, token int64) (units int, err error) {
	err = s.db.QueryRowContext(ctx, `UPDATE stock SET token = ? WHERE product = ? AND token <= ? RETURNING units`, token, product, token).Scan(&units)
	if errors.Is(err, sql.ErrNoRows) {
		err = s.refusal(ctx, product)
	}
	return units, err
}

// writeFenced writes unless the row has a greater token. The comparison and the write are
// one statement: a SELECT before the UPDATE would leave room for a pause between them.
func (s stock) writeFenced(ctx context.Context, product string, units int, token int64) error {
	return s.update(ctx, product, `UPDATE stock SET units = ?, token = ? WHERE product = ? AND token <= ?`, units, token, product, token)
}

// update runs a statement that has to change the row of a product that exists.
func (s stock) update(ctx context.Context, product, statement string, args ...any) error {
	res, err := s.db.ExecContext(ctx, statement, args...)
	if err != nil {
		return err
	}
	changed, err := res.RowsAffected()
	if err != nil || changed == 1 {
		return err
	}
	return s.refusal(ctx, product)
}

// refusal says why no row was changed.
func (s stock) refusal(ctx context.Context, product string) error {
	_, token, err := s.row(ctx, product)
	if err != nil {
		return err // there is no such product
	}
	return fmt.Errorf("%w, %d", errStale, token)
}

// row returns the table's row of product.
func (s stock) row(ctx context.Context, product string) (units int, token int64, err error) {
	err = s.db.QueryRowContext(ctx, `SELECT units, token FROM stock WHERE product = ?`, product).Scan(&units, &token)
	return units, token, err
}

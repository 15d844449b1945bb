package sqlfence

import (
	"context"
	"database/sql"
	"errors"
)

// PgxTx has the methods of a pgx.Tx that [Pgx] needs, of any version of pgx: T is pgconn.CommandTag. The
// compiler infers T, so that this package need not import pgx.
type PgxTx[T interface{ RowsAffected() int64 }] interface {
	Exec(ctx context.Context, sql string, args ...any) (T, error)
	Commit(ctx context.Context) error
	Rollback(ctx context.Context) error
}

// Pgx makes a Tx of a pgx.Tx:
//
//	err := fences.AdmitTx(ctx, sqlfence.Pgx(tx), lease.Key(), lease.Token())
func Pgx[T interface{ RowsAffected() int64 }](tx PgxTx[T]) Tx { return pgxTx[T]{tx} }

type pgxTx[T interface{ RowsAffected() int64 }] struct{ tx PgxTx[T] }

func (p pgxTx[T]) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	tag, err := p.tx.Exec(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	return pgxResult(tag.RowsAffected()), nil
}

func (p pgxTx[T]) Commit() error   { return p.tx.Commit(context.Background()) }
func (p pgxTx[T]) Rollback() error { return p.tx.Rollback(context.Background()) }

type pgxResult int64

func (r pgxResult) RowsAffected() (int64, error) { return int64(r), nil }
func (pgxResult) LastInsertId() (int64, error) {
	return 0, errors.New("sqlfence: PostgreSQL has no LastInsertId")
}

package sqlfence_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/distlock/locker/fence"
	"github.com/distlock/locker/fence/sqlfence"
)

// internal/test/fencing tests this package on real servers.

var _ sqlfence.Tx = (*sql.Tx)(nil)

func TestNew(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"a b", `a"`, "a`", "a;", "1a", "a.b.c", ".a", "a.", "ä", "a-b"} {
		_, err := sqlfence.New(sqlfence.PostgreSQL, name)
		require.ErrorIs(t, err, fence.ErrInvalid, name)
	}
	for _, d := range []sqlfence.Dialect{0, -1, 4} {
		_, err := sqlfence.New(d, "")
		require.ErrorIs(t, err, fence.ErrInvalid)
	}
	for d, quoted := range map[sqlfence.Dialect]string{
		sqlfence.PostgreSQL: `"app"."Fences"`, sqlfence.MySQL: "`app`.`Fences`", sqlfence.SQLite: `"app"."Fences"`,
	} {
		table, err := sqlfence.New(d, "app.Fences")
		require.NoError(t, err)
		require.Contains(t, table.Schema(), "CREATE TABLE IF NOT EXISTS "+quoted+" (")
		table, err = sqlfence.New(d, "")
		require.NoError(t, err)
		require.Contains(t, table.Schema(), sqlfence.DefaultTable)
	}
}

var errSent = errors.New("sent")

// transaction is a Tx of pgx's form that fails.
type transaction struct{ n int }

type tag struct{}

func (tag) RowsAffected() int64 { return 0 }

func (tx *transaction) Exec(context.Context, string, ...any) (tag, error) {
	tx.n++
	return tag{}, errSent
}
func (*transaction) Commit(context.Context) error   { return nil }
func (*transaction) Rollback(context.Context) error { return nil }

func TestNonsenseIsNotSent(t *testing.T) {
	t.Parallel()
	for _, d := range []sqlfence.Dialect{sqlfence.PostgreSQL, sqlfence.MySQL, sqlfence.SQLite} {
		table, err := sqlfence.New(d, "")
		require.NoError(t, err)
		tx := new(transaction)
		require.ErrorIs(t, table.AdmitTx(t.Context(), sqlfence.Pgx(tx), "lamp", 0), fence.ErrInvalid)
		require.ErrorIs(t, table.AdmitTx(t.Context(), sqlfence.Pgx(tx), "", 9), fence.ErrInvalid)
		require.ErrorIs(t, table.AdmitTx(t.Context(), nil, "lamp", 9), fence.ErrInvalid)
		require.ErrorIs(t, table.Guard(nil).Admit(t.Context(), "lamp", 9), fence.ErrInvalid)
		require.ErrorIs(t, new(sqlfence.Table).AdmitTx(t.Context(), sqlfence.Pgx(tx), "lamp", 9), fence.ErrInvalid)
		_, err = table.Prune(t.Context(), nil, time.Hour-1)
		require.ErrorIs(t, err, fence.ErrInvalid)
		_, err = table.Prune(t.Context(), nil, time.Hour)
		require.ErrorIs(t, err, fence.ErrInvalid)
		_, err = new(sqlfence.Table).Prune(t.Context(), new(sql.DB), time.Hour)
		require.ErrorIs(t, err, fence.ErrInvalid)
		require.Zero(t, tx.n)
		require.ErrorIs(t, table.AdmitTx(t.Context(), sqlfence.Pgx(tx), "lamp", 9), errSent)
	}
}

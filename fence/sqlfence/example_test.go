package sqlfence_test

import (
	"context"
	"database/sql"
	"errors"
	"log"

	"github.com/distlock/locker"
	"github.com/distlock/locker/fence"
	"github.com/distlock/locker/fence/sqlfence"
	"github.com/distlock/locker/strategy/memory"
)

// The token is admitted in the transaction that reads and writes, before it does so.
func ExampleTable_AdmitTx() {
	ctx := context.Background()
	db, err := sql.Open("pgx", "postgres://localhost/shop")
	if err != nil {
		log.Fatal(err)
	}
	fences, err := sqlfence.New(sqlfence.PostgreSQL, "")
	if err != nil {
		log.Fatal(err)
	}
	if _, err := db.ExecContext(ctx, fences.Schema()); err != nil { // once
		log.Fatal(err)
	}
	l, err := memory.New()
	if err != nil {
		log.Fatal(err)
	}
	err = locker.Do(ctx, l, "lamp", func(ctx context.Context) error {
		lease, _ := locker.LeaseFromContext(ctx)
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }()
		if err := fences.AdmitTx(ctx, tx, lease.Key(), lease.Token()); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, `UPDATE stock SET units = units - 1 WHERE id = $1`, "lamp"); err != nil {
			return err
		}
		return tx.Commit()
	})
	if errors.Is(err, fence.ErrStale) {
		log.Print("refused: a later owner was here, and nothing was written")
	} else if err != nil {
		log.Fatal(err)
	}
}

package gooselocker_test

import (
	"context"
	"database/sql"
	"embed"
	"fmt"
	"io/fs"

	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/redis/go-redis/v9"

	gooselocker "github.com/distlock/locker/adapters/goose"
	"github.com/distlock/locker/strategy/hashreentrant"
)

//go:embed testdata/migrations/*.sql
var embedded embed.FS

var migrations, _ = fs.Sub(embedded, "testdata/migrations")

// migrate is the program of README.md. TestReadme runs it.
func migrate(ctx context.Context, rdb *redis.Client, db *sql.DB) error {
	l, err := hashreentrant.New(rdb)
	if err != nil {
		return err
	}
	defer l.Close()
	lock, err := gooselocker.New(l, "migrations/app")
	if err != nil {
		return err
	}
	p, err := goose.NewProvider(goose.DialectPostgres, db, migrations, goose.WithLocker(lock))
	if err != nil {
		return err
	}
	ctx, stop := lock.Context(ctx) // ends if the lock is lost
	defer stop()
	applied, err := p.Up(ctx)
	fmt.Println(len(applied), "migrations applied")
	return err
}

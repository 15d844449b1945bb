package blocks_test

import (
	"context"
	"database/sql"

	"github.com/distlock/locker"
	"github.com/redis/go-redis/v9"
)

// given, blocks and programs are generated with the blocks' module, in place of this file.
type given struct {
	ctx   context.Context
	db    *sql.DB
	l     *locker.Client
	lease *locker.Lease
	n     int
	rdb   *redis.Client
	ship  func(context.Context) error
}

var (
	blocks   map[string]func(given) error
	programs map[string]func()
)

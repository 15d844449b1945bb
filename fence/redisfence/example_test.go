package redisfence_test

import (
	"context"
	"errors"
	"log"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/fence"
	"github.com/distlock/locker/fence/redisfence"
	"github.com/distlock/locker/strategy/setnx"
	"github.com/redis/go-redis/v9"
)

func ExampleGuard_Set() {
	ctx, rdb := context.Background(), redis.NewClient(&redis.Options{Addr: "localhost:6379"})
	l, err := setnx.New(rdb)
	if err != nil {
		log.Fatal(err)
	}
	guard, err := redisfence.New(rdb)
	if err != nil {
		log.Fatal(err)
	}
	err = locker.Do(ctx, l, "reports", func(ctx context.Context) error {
		lease, _ := locker.LeaseFromContext(ctx)
		return guard.Set(ctx, "report:today", lease.Token(), "the report", 24*time.Hour)
	})
	if errors.Is(err, fence.ErrStale) {
		log.Print("a later owner has written, and its report stands")
	} else if err != nil {
		log.Fatal(err)
	}
}

// A script of one's own. All its keys have the hash tag of the key that the token is for.
func ExampleGuard_Run() {
	ctx, rdb := context.Background(), redis.NewClient(&redis.Options{Addr: "localhost:6379"})
	guard, err := redisfence.New(rdb)
	if err != nil {
		log.Fatal(err)
	}
	put := redisfence.NewScript(`return redis.call('HSET', KEYS[1], 'units', ARGV[1])`)
	token := int64(1795396689355718) // of the lease
	if _, err := guard.Run(ctx, put, "stock", token, []string{"{stock}:lamp"}, 9); err != nil {
		log.Fatal(err)
	}
}

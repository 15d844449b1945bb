package setnx_test

import (
	"context"
	"log"

	"github.com/distlock/locker"
	"github.com/distlock/locker/strategy/setnx"
	"github.com/redis/go-redis/v9"
)

func ExampleNew() {
	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
	defer rdb.Close()
	l, err := setnx.New(rdb)
	if err != nil {
		log.Fatal(err)
	}
	defer l.Close()
	err = locker.Do(context.Background(), l, "orders/42", func(ctx context.Context) error {
		return nil // no other process is in here; ctx ends if the lock is lost
	})
	if err != nil {
		log.Fatal(err)
	}
}

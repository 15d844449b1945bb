package redlock_test

import (
	"context"
	"log"

	"github.com/distlock/locker"
	"github.com/distlock/locker/strategy/redlock"
	"github.com/redis/go-redis/v9"
)

// Three masters that fail independently; all processes name them in the same order.
func ExampleNew() {
	var nodes []redis.UniversalClient
	for _, addr := range []string{"a:6379", "b:6379", "c:6379"} {
		rdb := redis.NewClient(&redis.Options{Addr: addr})
		defer rdb.Close()
		nodes = append(nodes, rdb)
	}
	l, err := redlock.New(nodes)
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

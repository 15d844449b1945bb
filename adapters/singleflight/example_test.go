package singleflight_test

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/distlock/locker/adapters/singleflight"
	"github.com/distlock/locker/strategy/hashreentrant"
)

// serve is the program of README.md. TestReadme runs it.
func serve(ctx context.Context, rdb *redis.Client) error {
	l, err := hashreentrant.New(rdb)
	if err != nil {
		return err
	}
	defer l.Close()
	reports, err := singleflight.New(l, singleflight.NewRedis(rdb), singleflight.WithTTL(10*time.Minute))
	if err != nil {
		return err
	}
	page, err := reports.Do(ctx, "2026-11", func(context.Context) ([]byte, error) {
		fmt.Println("one process computes")
		return []byte("the report of November"), nil
	})
	fmt.Printf("%s\n", page)
	return err
}

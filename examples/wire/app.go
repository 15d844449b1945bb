package main

import (
	"context"
	"fmt"
	"io"

	"github.com/distlock/locker"
	"github.com/redis/go-redis/v9"
)

// app is the program. It knows nothing of strategies.
type app struct {
	locks locker.Locker
	out   io.Writer
}

func newApp(locks locker.Locker, out io.Writer) *app { return &app{locks, out} }

// report makes the daily report, which one process at a time may do.
func (a *app) report(ctx context.Context) error {
	lease, err := a.locks.Lock(ctx, "report")
	if err != nil {
		return err
	}
	fmt.Fprintf(a.out, "  locked %q: token %d\n", lease.Key(), lease.Token())
	err = locker.Do(lease.Context(ctx), a.locks, "report", func(context.Context) error {
		fmt.Fprintf(a.out, "  entered again: %d holds\n", lease.Holds())
		return nil
	})
	if err != nil {
		return err
	}
	if err := lease.Unlock(ctx); err != nil {
		return err
	}
	fmt.Fprintln(a.out, "  unlocked")
	return nil
}

// redisURL is a type of its own, for wire to tell it from other strings.
type redisURL string

// dial provides the client that the strategies chosen when building need.
func dial(url redisURL) (*redis.Client, func(), error) {
	opts, err := redis.ParseURL(string(url))
	if err != nil {
		return nil, nil, err
	}
	rdb := redis.NewClient(opts)
	return rdb, func() { _ = rdb.Close() }, nil
}

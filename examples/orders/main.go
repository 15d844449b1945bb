// Orders is an order service whose intake never waits for a lock.
//
//	go run ./examples/orders                    # on an embedded server
//	go run ./examples/orders -url blpop+redis://localhost:6379
//	go run ./examples/orders -careless          # with locks that other instances do not see
//
// Orders come in faster than they are booked. A booking reads the customer's account, takes
// some time and writes it, so that the orders of one customer have to be booked one at a
// time, by whichever instance of the service. Each order waits for its customer's lock in a
// goroutine of its own, and the number of these is bounded: an order for which there is no
// room is refused at once, as HTTP's 503 would.
//
// Start reading at service.go.
//
// Ctrl-C stops the intake, gives up orders that wait, and finishes those that are being
// booked. The exit code is 0 if the accounts are right, 1 if not, 2 for bad usage and 130
// after Ctrl-C.
package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/examples/internal/cli"
	"github.com/distlock/locker/internal/embedredis"
	"github.com/distlock/locker/strategy"
)

func main() { cli.Main("orders", run) }

type config struct {
	url                                 string
	careless                            bool
	instances, orders, customers, room  int
	every, booking, maxWait, tellsEvery time.Duration
}

func parse(p *cli.Program) (cfg config, err error) {
	p.StringVar(&cfg.url, "url", "", "where the locks are, as for strategy.OpenURL (default an embedded server)")
	p.BoolVar(&cfg.careless, "careless", false, "lock within each instance only, so that bookings are lost")
	p.IntVar(&cfg.instances, "instances", 3, "instances of the service, each with a Locker of its own")
	p.IntVar(&cfg.orders, "orders", 600, "orders")
	p.IntVar(&cfg.customers, "customers", 8, "customers")
	p.IntVar(&cfg.room, "room", 30, "orders that an instance has under way at most")
	p.DurationVar(&cfg.every, "every", 2*time.Millisecond, "time between two orders")
	p.DurationVar(&cfg.booking, "booking", 20*time.Millisecond, "how long a booking takes")
	p.DurationVar(&cfg.maxWait, "wait", time.Second, "how long an order waits for its customer's lock")
	p.DurationVar(&cfg.tellsEvery, "progress", 500*time.Millisecond, "time between two lines of progress")
	if err := p.Parse(); err != nil {
		return cfg, err
	}
	switch {
	case min(cfg.instances, cfg.orders, cfg.customers, cfg.room) < 1:
		err = p.Misused("-instances, -orders, -customers and -room are at least 1")
	case cfg.careless && cfg.url != "":
		err = p.Misused("-careless goes without -url")
	case min(cfg.every, cfg.booking, cfg.maxWait) < 0 || cfg.tellsEvery <= 0:
		err = p.Misused("-every, -booking and -wait are not negative, and -progress is positive")
	}
	return cfg, err
}

func run(ctx context.Context, p *cli.Program) error {
	cfg, err := parse(p)
	if err != nil {
		return err
	}
	open, closeStore, err := store(cfg, p.Stderr)
	if err != nil {
		return err
	}
	defer closeStore()
	t, err := trade(ctx, cfg, open, p.Stderr)
	if err != nil {
		return err
	}
	t.print(p.Stdout)
	if !t.right() {
		return cli.ErrFailed
	}
	return nil
}

// store says how an instance gets its Locker.
func store(cfg config, stderr io.Writer) (open func(ctx context.Context, instance int) (*locker.Client, func(), error), end func(), err error) {
	if cfg.careless { // as a sync.Mutex: each instance excludes only itself
		return func(ctx context.Context, instance int) (*locker.Client, func(), error) {
			return strategy.OpenURL(ctx, fmt.Sprintf("memory://instance-%d?fencing=off", instance))
		}, func() {}, nil
	}
	url, end := cfg.url, func() {}
	if url == "" {
		urls, stop, err := embedredis.Instead(stderr, "-url", 1)
		if err != nil {
			return nil, nil, err
		}
		url, end = "hashreentrant+"+urls[0], stop
	}
	return func(ctx context.Context, _ int) (*locker.Client, func(), error) { return strategy.OpenURL(ctx, url) }, end, nil
}

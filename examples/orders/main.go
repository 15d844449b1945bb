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
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/internal/embedredis"
	"github.com/distlock/locker/strategy"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C does not wait
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

type config struct {
	url                                 string
	careless                            bool
	instances, orders, customers, room  int
	every, booking, maxWait, tellsEvery time.Duration
}

func parse(args []string, stderr io.Writer) (cfg config, err error) {
	f := flag.NewFlagSet("orders", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.StringVar(&cfg.url, "url", "", "where the locks are, as for strategy.OpenURL (default an embedded server)")
	f.BoolVar(&cfg.careless, "careless", false, "lock within each instance only, so that bookings are lost")
	f.IntVar(&cfg.instances, "instances", 3, "instances of the service, each with a Locker of its own")
	f.IntVar(&cfg.orders, "orders", 600, "orders")
	f.IntVar(&cfg.customers, "customers", 8, "customers")
	f.IntVar(&cfg.room, "room", 30, "orders that an instance has under way at most")
	f.DurationVar(&cfg.every, "every", 2*time.Millisecond, "time between two orders")
	f.DurationVar(&cfg.booking, "booking", 20*time.Millisecond, "how long a booking takes")
	f.DurationVar(&cfg.maxWait, "wait", time.Second, "how long an order waits for its customer's lock")
	f.DurationVar(&cfg.tellsEvery, "progress", 500*time.Millisecond, "time between two lines of progress")
	if err = f.Parse(args); err != nil {
		return cfg, err
	}
	switch {
	case f.NArg() > 0:
		err = fmt.Errorf("unexpected argument %q", f.Arg(0))
	case min(cfg.instances, cfg.orders, cfg.customers, cfg.room) < 1:
		err = errors.New("-instances, -orders, -customers and -room are at least 1")
	case cfg.careless && cfg.url != "":
		err = errors.New("-careless goes without -url")
	case min(cfg.every, cfg.booking, cfg.maxWait) < 0 || cfg.tellsEvery <= 0:
		err = errors.New("-every, -booking and -wait are not negative, and -progress is positive")
	}
	if err != nil {
		fmt.Fprintln(stderr, "orders:", err)
	}
	return cfg, err
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	cfg, err := parse(args, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return 2
	}
	open, closeStore, err := store(cfg, stderr)
	if err != nil {
		fmt.Fprintln(stderr, "orders:", err)
		return 1
	}
	defer closeStore()
	t, err := trade(ctx, cfg, open, stderr)
	if err != nil {
		fmt.Fprintln(stderr, "orders:", err)
		return 1
	}
	t.print(stdout)
	switch {
	case ctx.Err() != nil:
		fmt.Fprintln(stderr, "orders: interrupted")
		return 130
	case !t.right():
		return 1
	}
	return 0
}

// store says how an instance gets its Locker.
func store(cfg config, stderr io.Writer) (open func(ctx context.Context, instance int) (*locker.Client, func(), error), end func(), err error) {
	url, end := cfg.url, func() {}
	switch {
	case cfg.careless: // as a sync.Mutex: each instance excludes only itself
		return func(ctx context.Context, instance int) (*locker.Client, func(), error) {
			return strategy.OpenURL(ctx, fmt.Sprintf("memory://instance-%d?fencing=off", instance))
		}, end, nil
	case url == "":
		srv, err := embedredis.Start()
		if err != nil {
			return nil, nil, err
		}
		url, end = "hashreentrant+"+srv.URL(), srv.Close
		fmt.Fprintf(stderr, "No -url given: using an embedded server (miniredis) at %s\n", srv.URL())
	}
	return func(ctx context.Context, _ int) (*locker.Client, func(), error) { return strategy.OpenURL(ctx, url) }, end, nil
}

package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/distlock/locker"
)

// tally counts the outcomes of the orders.
type tally struct {
	taken, busy, booked, gaveUp, failed int

	slowest time.Duration   // of the intake
	waits   []time.Duration // for locks that were had

	bookedCents, spentCents int64
	firstErr                error
}

// right says whether the accounts have all that was booked, and no more.
func (t *tally) right() bool { return t.spentCents == t.bookedCents && t.failed == 0 }

func (t *tally) add(r result) {
	switch {
	case r.err == nil:
		t.booked++
		t.bookedCents += r.cents
		t.waits = append(t.waits, r.waited)
	case r.gaveUp:
		t.gaveUp++
	default:
		t.failed++
		if t.firstErr == nil {
			t.firstErr = r.err
		}
	}
}

// trade has instances of the service take in orders, and waits until all are done.
func trade(ctx context.Context, cfg config, open func(context.Context, int) (*locker.Client, func(), error), stderr io.Writer) (*tally, error) {
	accounts, results := newAccounts(cfg.booking), make(chan result)
	var services []*service
	for i := range cfg.instances {
		locks, release, err := open(ctx, i)
		if err != nil {
			return nil, err
		}
		defer release()
		services = append(services, newService(locks, accounts, cfg.room, cfg.maxWait, results))
	}
	t, intake := new(tally), make(chan intakeResult)
	go func() {
		defer close(results)
		takeIn(ctx, cfg, services, intake)
		close(intake)
		for _, s := range services {
			s.wait()
		}
	}()

	tell := time.NewTicker(cfg.tellsEvery)
	defer tell.Stop()
	for results != nil {
		select {
		case in, ok := <-intake:
			if !ok {
				intake = nil
				break
			}
			t.taken++
			t.slowest = max(t.slowest, in.took)
			if in.err != nil {
				t.busy++
			}
		case r, ok := <-results:
			if !ok {
				results = nil
				break
			}
			t.add(r)
		case <-tell.C:
			fmt.Fprintf(stderr, "%d of %d orders taken in, %d booked, %d under way\n",
				t.taken, cfg.orders, t.booked, t.taken-t.busy-t.booked-t.gaveUp-t.failed)
		}
	}
	t.spentCents = accounts.total()
	return t, nil
}

// intakeResult is the answer to the customer who places an order.
type intakeResult struct {
	took time.Duration
	err  error
}

// takeIn places orders with the instances until there are enough or ctx ends.
func takeIn(ctx context.Context, cfg config, services []*service, intake chan<- intakeResult) {
	next := time.NewTimer(0)
	defer next.Stop()
	for id := range cfg.orders {
		select {
		case <-next.C:
			next.Reset(cfg.every)
		case <-ctx.Done():
			return
		}
		o := order{id: id, customer: fmt.Sprint(rand.N(cfg.customers)), cents: 100 + rand.N[int64](10_000)}
		began := time.Now()
		err := services[id%len(services)].submit(ctx, o)
		intake <- intakeResult{time.Since(began), err}
	}
}

func (t *tally) print(w io.Writer) {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, line := range []struct {
		what string
		is   any
	}{
		{"orders", t.taken},
		{"booked", t.booked},
		{"refused at once, no room", t.busy},
		{"given up, the lock stayed taken", t.gaveUp},
		{"failed", t.failed},
		{"slowest intake", t.slowest.Round(10 * time.Microsecond)},
		{"wait for a lock, median", t.wait(50).Round(100 * time.Microsecond)},
		{"wait for a lock, 99th percentile", t.wait(99).Round(100 * time.Microsecond)},
		{"cents booked", t.bookedCents},
		{"cents in the accounts", t.spentCents},
	} {
		fmt.Fprintf(table, "%s\t%v\n", line.what, line.is)
	}
	_ = table.Flush()
	switch {
	case t.firstErr != nil:
		fmt.Fprintln(w, "An order has failed:", t.firstErr)
	case t.right():
		fmt.Fprintln(w, "The accounts are right.")
	default:
		fmt.Fprintf(w, "Bookings were lost: %d cents are missing.\n", t.bookedCents-t.spentCents)
	}
}

// wait returns a percentile.
func (t *tally) wait(percent int) time.Duration {
	if len(t.waits) == 0 {
		return 0
	}
	slices.Sort(t.waits)
	return t.waits[(len(t.waits)-1)*percent/100]
}

package main

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/examples/internal/cli"
	"github.com/distlock/locker/internal/test/redistest"
	"github.com/distlock/locker/strategy/memory"
)

func TestAccountsAreRight(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{
		"embedded": {"-orders", "200"},
		"redis":    {"-orders", "200", "-url", "blpop+" + redistest.Shared(t).URL() + "?prefix=orders-test:"},
		"no room":  {"-orders", "100", "-room", "1", "-every", "0", "-progress", "10ms"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out, errs bytes.Buffer
			if code := cli.Run(t.Context(), "orders", run, args, &out, &errs); code != 0 || !strings.Contains(out.String(), "The accounts are right.") {
				t.Errorf("exit code %d\n%s%s", code, out.String(), errs.String())
			}
			if name == "no room" && (strings.Contains(out.String(), "no room             0\n") || !strings.Contains(errs.String(), "under way")) {
				t.Errorf("no order was refused, or no progress was told\n%s%s", out.String(), errs.String())
			}
		})
	}
}

func TestBookingsAreLostWithoutACommonLock(t *testing.T) {
	t.Parallel()
	var out, errs bytes.Buffer
	args := []string{"-careless", "-orders", "200", "-customers", "1", "-booking", "5ms"}
	if code := cli.Run(t.Context(), "orders", run, args, &out, &errs); code != 1 || !strings.Contains(out.String(), "Bookings were lost") {
		t.Errorf("exit code %d\n%s%s", code, out.String(), errs.String())
	}
}

// After Ctrl-C the orders that wait are given up, and those being booked are in the accounts.
func TestInterrupt(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	time.AfterFunc(300*time.Millisecond, cancel)
	var out, errs bytes.Buffer
	began := time.Now()
	if code := cli.Run(ctx, "orders", run, []string{"-orders", "1000000", "-wait", "1h"}, &out, &errs); code != 130 {
		t.Errorf("exit code %d\n%s%s", code, out.String(), errs.String())
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("it ended after %v", took)
	}
	if !strings.Contains(out.String(), "The accounts are right.") || !strings.Contains(errs.String(), "interrupted") {
		t.Errorf("%s%s", out.String(), errs.String())
	}
}

func TestRefusesNonsense(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"-nosuch"}, {"more"}, {"-room", "0"}, {"-wait", "-1s"}, {"-careless", "-url", "memory://x"}} {
		var out, errs bytes.Buffer
		if code := cli.Run(t.Context(), "orders", run, args, &out, &errs); code != 2 || errs.Len() == 0 {
			t.Errorf("%v: exit code %d, %s", args, code, errs.String())
		}
	}
	var out, errs bytes.Buffer
	if code := cli.Run(t.Context(), "orders", run, []string{"-url", "nosuch://x"}, &out, &errs); code != 1 {
		t.Errorf("exit code %d, %s", code, errs.String())
	}
}

// The intake does not wait, neither for a lock that is held nor for room.
func TestIntakeDoesNotWait(t *testing.T) {
	t.Parallel()
	locks, err := memory.New()
	if err != nil {
		t.Fatal(err)
	}
	defer locks.Close()
	lease, err := locks.Lock(t.Context(), "customer/ann")
	if err != nil {
		t.Fatal(err)
	}
	results := make(chan result, 3)
	s := newService(locks, newAccounts(0), 2, time.Minute, results)
	for _, want := range []error{nil, nil, errBusy} {
		if err := s.submit(t.Context(), order{customer: "ann", cents: 1}); !errors.Is(err, want) {
			t.Errorf("%v, not %v", err, want)
		}
	}
	if err := lease.Unlock(t.Context()); err != nil {
		t.Error(err)
	}
	s.wait()
	for range 2 {
		if r := <-results; r.err != nil {
			t.Error(r.err)
		}
	}
	if n := s.accounts.total(); n != 2 {
		t.Errorf("%d cents are booked", n)
	}
}

// An order whose lease is lost while it is being booked is not written.
func TestLostLeaseIsNotBooked(t *testing.T) {
	t.Parallel()
	store := memory.NewStore()
	granted := make(chan struct{})
	locks, err := store.New(locker.WithTTL(100*time.Millisecond), locker.WithObserver(locker.ObserverFunc(func(_ context.Context, e locker.Event) {
		if e.Kind == locker.EventAcquired {
			close(granted)
		}
	})))
	if err != nil {
		t.Fatal(err)
	}
	defer locks.Close()
	results := make(chan result, 1)
	s := newService(locks, newAccounts(time.Minute), 1, time.Minute, results)
	if err := s.submit(t.Context(), order{customer: "ann", cents: 1}); err != nil {
		t.Fatal(err)
	}
	<-granted
	if !store.Break("customer/ann") {
		t.Fatal("the order has no lock")
	}
	if r := <-results; !errors.Is(r.err, locker.ErrLost) {
		t.Errorf("%v", r.err)
	}
	if n := s.accounts.total(); n != 0 {
		t.Errorf("%d cents are booked", n)
	}
}

package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/distlock/locker"
)

// order is the sum that a customer wants to spend.
type order struct {
	id       int
	customer string
	cents    int64
}

// result is the outcome of an order.
type result struct {
	order
	waited time.Duration // for the customer's lock
	err    error
	gaveUp bool // it did not get the lock in time, or before the intake stopped
}

// errBusy is the answer to an order for which there is no room.
var errBusy = errors.New("too many orders are waiting")

// service books orders. submit returns at once: a goroutine waits for the lock of the order's
// customer, and sends the result. Orders of one customer are booked one at a time, in
// whichever process; those of different customers do not wait for one another.
//
// A goroutine that waits for a lock is cheap: of all that wait for one key in one process,
// only the first one talks to Redis. There is a bound nevertheless, since an intake without
// one grows until the memory is used up. (For one lock in the background there is
// locker.LockAsync.)
type service struct {
	locks    locker.Locker
	accounts *accounts
	maxWait  time.Duration // for a customer's lock
	results  chan<- result

	room  chan struct{} // has an element for each order that is not done
	under sync.WaitGroup
}

func newService(locks locker.Locker, a *accounts, room int, maxWait time.Duration, results chan<- result) *service {
	return &service{locks: locks, accounts: a, maxWait: maxWait, results: results, room: make(chan struct{}, room)}
}

// submit takes an order in, or fails with errBusy. When ctx ends, orders that still wait for
// their lock are given up; one that is being booked is finished.
func (s *service) submit(ctx context.Context, o order) error {
	select {
	case s.room <- struct{}{}:
	default:
		return errBusy
	}
	s.under.Go(func() {
		defer func() { <-s.room }()
		s.results <- s.process(ctx, o)
	})
	return nil
}

// wait returns when all orders that were taken in are done.
func (s *service) wait() { s.under.Wait() }

func (s *service) process(ctx context.Context, o order) result {
	r, began := result{order: o}, time.Now()
	lease, err := s.locks.Lock(ctx, "customer/"+o.customer, locker.WithWait(s.maxWait))
	r.waited = time.Since(began)
	if err != nil {
		r.err, r.gaveUp = err, errors.Is(err, locker.ErrNotAcquired) || ctx.Err() != nil // stopped in the middle of a command
		return r
	}
	// From here on the order is booked though the intake may stop; it ends with the lease only.
	ctx = lease.Context(context.WithoutCancel(ctx))
	r.err = errors.Join(s.accounts.book(ctx, o, lease.Token()), ignoreLeft(lease.Unlock(ctx)))
	return r
}

// ignoreLeft is for an Unlock that got no answer: the section is over, and the key is free when
// its TTL ends. A lost lease is no such case: the order may have been booked beside another.
func ignoreLeft(err error) error {
	if errors.Is(err, locker.ErrUnavailable) {
		return nil
	}
	return err
}

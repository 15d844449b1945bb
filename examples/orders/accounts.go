package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/distlock/locker/examples/internal/cli"
)

// errStale: a later owner of the customer's lock has written already.
var errStale = errors.New("the account has a greater fencing token")

// accounts stands for a table in a database that all processes of the service use. A booking
// reads the balance, takes some time, and writes the new balance: two at a time for one
// customer lose one of them.
type accounts struct {
	delay time.Duration // of a booking

	mu    sync.Mutex // of the stand-in, as a database has it for a statement; not of a booking
	spent map[string]int64
	token map[string]int64
}

func newAccounts(delay time.Duration) *accounts {
	return &accounts{delay: delay, spent: make(map[string]int64), token: make(map[string]int64)}
}

func (a *accounts) book(ctx context.Context, o order, token int64) error {
	spent := a.read(o.customer)
	if err := cli.Sleep(ctx, a.delay); err != nil {
		return err // the lease is lost
	}
	return a.write(o.customer, spent+o.cents, token)
}

func (a *accounts) read(customer string) int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.spent[customer]
}

// write is UPDATE accounts SET spent = $1, token = $2 WHERE customer = $3 AND token <= $2.
func (a *accounts) write(customer string, spent, token int64) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if token < a.token[customer] {
		return errStale
	}
	a.spent[customer], a.token[customer] = spent, token
	return nil
}

func (a *accounts) total() (cents int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, spent := range a.spent {
		cents += spent
	}
	return cents
}

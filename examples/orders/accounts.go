package main

import (
	"context"
	"sync"
	"time"

	"github.com/distlock/locker/examples/internal/cli"
	"github.com/distlock/locker/fence"
)

// accounts stands for a table in a database that all processes of the service use. A booking
// reads the balance, takes some time, and writes the new balance: two at a time for one
// customer lose one of them.
type accounts struct {
	delay  time.Duration // of a booking
	tokens *fence.Memory // of the stand-in; for a database it is package sqlfence

	mu    sync.Mutex // of the stand-in, as a database has it for a statement; not of a booking
	spent map[string]int64
}

func newAccounts(delay time.Duration) *accounts {
	return &accounts{delay: delay, tokens: fence.NewMemory(), spent: make(map[string]int64)}
}

func (a *accounts) book(ctx context.Context, o order, token int64) error {
	if token != 0 { // before the read, so that no earlier owner writes between the read and the write
		if err := a.tokens.Admit(ctx, o.customer, token); err != nil {
			return err
		}
	}
	spent := a.read(o.customer)
	if err := cli.Sleep(ctx, a.delay); err != nil {
		return err // the lease is lost
	}
	return a.write(ctx, o.customer, spent+o.cents, token)
}

func (a *accounts) read(customer string) int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.spent[customer]
}

// write fails with [fence.ErrStale] if a later owner of the customer's lock has written. Without a token, as
// -careless has it, nothing is checked.
func (a *accounts) write(ctx context.Context, customer string, spent, token int64) error {
	set := func() error {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.spent[customer] = spent
		return nil
	}
	if token == 0 {
		return set()
	}
	return a.tokens.Do(ctx, customer, token, set)
}

func (a *accounts) total() (cents int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, spent := range a.spent {
		cents += spent
	}
	return cents
}

// Package gooselocker lets the instances of a program migrate their database by
// github.com/pressly/goose/v3 one after the other: the first applies what is pending, and the
// others find nothing to do.
//
//	lock, err := gooselocker.New(l, "migrations/app")
//	...
//	p, err := goose.NewProvider(goose.DialectPostgres, db, migrations, goose.WithLocker(lock))
//
// goose has lockers for PostgreSQL and MySQL. One is a session's advisory lock, which a pooler in transaction mode hands
// to another client. The other is a table. This one takes any Locker, for any database: it is renewed
// while a migration runs, however long that takes; where an instance dies, the next one goes on after the TTL, 30 s by
// default.
//
// While the lock is held, no second instance that uses the same key and store migrates, also if their contexts name the
// same owner ([locker.ContextWithOwner]). After a loss of the lock, two may migrate. Limits:
//
//   - goose does not notify a migration of the loss of its lock. Give it the context of [Locker.Context], which
//     ends then: what has not been committed is rolled back.
//   - A process that is paused past its lease may commit a migration beside the next one. Migrations in
//     transactions that fail when they are applied twice, as CREATE TABLE does, are safe from that.
//   - The lock is not re-entrant: a run under a lease on its key would wait for itself.
//   - goose's GetVersions, HasPending and Status take no lock.
package gooselocker

import (
	"context"
	"crypto/rand"
	"database/sql"
	"fmt"
	"slices"
	"sync"

	"github.com/pressly/goose/v3/lock"

	"github.com/distlock/locker"
	"github.com/distlock/locker/adapters/internal/check"
)

var (
	_ lock.Locker        = (*Locker)(nil)
	_ lock.SessionLocker = (*Locker)(nil)
)

// Locker is for goose.WithLocker, or for goose.WithSessionLocker, which costs a connection more. It does not use
// the database that it is given.
type Locker struct {
	l    locker.Locker
	key  string
	opts []locker.LockOption

	mu       sync.Mutex
	held     []*locker.Lease                       // the oldest first; more than one only after a loss
	watching map[*context.CancelCauseFunc]struct{} // those of Context
}

// Option configures a Locker.
type Option interface {
	apply(*Locker) error
}

type option func(*Locker) error

func (o option) apply(to *Locker) error { return o(to) }

// WithLockOptions gives the lock options: WithTTL sets after how long another instance goes on where one has
// died, WithWait how long an instance waits. By default it waits until the context ends.
func WithLockOptions(opts ...locker.LockOption) Option {
	return option(func(k *Locker) error {
		k.opts = append(k.opts, opts...)
		return nil
	})
}

// New makes a Locker for goose, which holds key while migrations run: give each database a key. A wrong argument is
// an error that matches [locker.ErrInvalid].
func New(l locker.Locker, key string, opts ...Option) (*Locker, error) {
	k := &Locker{l: l, key: key, watching: make(map[*context.CancelCauseFunc]struct{})}
	err := check.Options(opts, func(o Option) error { return o.apply(k) })
	if err == nil {
		err = locker.Validate(l, key, k.opts...)
	}
	if err != nil {
		return nil, fmt.Errorf("gooselocker: %w", err)
	}
	return k, nil
}

// Lock implements [lock.Locker]. It waits until no other instance migrates, with the errors of the Locker's Lock.
func (k *Locker) Lock(ctx context.Context, _ *sql.DB) error { return k.take(ctx) }

// Unlock implements [lock.Locker]. If the lock was lost while goose ran, the error matches [locker.ErrLost]: another
// instance may have migrated at the same time.
func (k *Locker) Unlock(ctx context.Context, _ *sql.DB) error { return k.giveBack(ctx) }

// SessionLock implements [lock.SessionLocker], as Lock does.
func (k *Locker) SessionLock(ctx context.Context, _ *sql.Conn) error { return k.take(ctx) }

// SessionUnlock implements [lock.SessionLocker], as Unlock does.
func (k *Locker) SessionUnlock(ctx context.Context, _ *sql.Conn) error { return k.giveBack(ctx) }

// Context returns a context for the methods of a goose.Provider. It ends when the lock is lost while one of them has
// it, with a cause that matches [locker.ErrLost], and when parent or stop does.
//
//	ctx, stop := lock.Context(ctx)
//	defer stop()
//	_, err := p.Up(ctx)
func (k *Locker) Context(parent context.Context) (ctx context.Context, stop context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(parent)
	end := &cancel
	k.mu.Lock()
	defer k.mu.Unlock()
	k.watching[end] = struct{}{}
	return ctx, func() {
		k.mu.Lock()
		delete(k.watching, end)
		k.mu.Unlock()
		cancel(context.Canceled)
	}
}

func (k *Locker) take(ctx context.Context) error {
	// The owner is new: instances whose contexts name the same one do not migrate together.
	lease, err := k.l.Lock(locker.ContextWithOwner(ctx, rand.Text()), k.key, k.opts...)
	if err != nil {
		return fmt.Errorf("gooselocker: %w", err)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.held = append(k.held, lease)
	// The lease's context ends by Unlock, too, which is no loss.
	over := lease.Context(context.WithoutCancel(ctx))
	context.AfterFunc(over, func() { k.lost(lease, context.Cause(over)) })
	return nil
}

// lost ends the contexts if lease is still held: its end then is a loss.
func (k *Locker) lost(lease *locker.Lease, cause error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !slices.Contains(k.held, lease) {
		return
	}
	for end := range k.watching {
		(*end)(cause)
	}
}

// giveBack unlocks the oldest lease. After a loss there may be two runs at a time: whichever ends first takes
// the lost lease, so that the lock is not given back before both have ended.
func (k *Locker) giveBack(ctx context.Context) error {
	k.mu.Lock()
	if len(k.held) == 0 {
		k.mu.Unlock()
		return fmt.Errorf("gooselocker: unlock of %q: %w", k.key, locker.ErrNotHeld)
	}
	lease := k.held[0]
	k.held = k.held[1:]
	k.mu.Unlock()
	if err := lease.Unlock(ctx); err != nil {
		return fmt.Errorf("gooselocker: %w", err)
	}
	return nil
}

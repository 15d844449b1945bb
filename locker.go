package locker

import (
	"context"
	"errors"
	"fmt"
)

// Locker hands out leases on named locks. Make one with the New of a strategy
// package (strategy/setnx, strategy/hashreentrant, strategy/memory, ...) or,
// for a driver of your own, with [New]. It is safe for use by many goroutines;
// a process needs one per store.
//
// A key is 1 byte to 16 KiB of UTF-8, and does not, with its prefix, begin with "locker:",
// because this library's own keys do. Every strategy accepts every such key.
type Locker interface {
	// Lock waits until the caller holds key, the wait given by [WithWait] is
	// over, or ctx is done. Within one Locker waiters for a key are served
	// first come, first served. ctx governs the wait only: the lease lives on
	// after it.
	//
	// Under the context of a lease (see [Lease.Context]) on the same key of the same Locker, or for
	// an owner that is named by [ContextWithOwner] and holds the key, Lock re-enters at once.
	// Re-entry costs one command with hashreentrant and blpop, and none with other strategies. The
	// lock is given back by as many Unlocks as there were Locks.
	//
	// It fails with [ErrNotAcquired] when the key stayed taken, with
	// [ErrUnavailable] when the store could not be used (Lock retries
	// transient errors for max(TTL, 15 s)), with [ErrLost] when re-entering a lease
	// that is already lost, with [ErrConflict] when the key holds something that
	// is no lock, with [ErrInvalid] on misuse and with [ErrClosed] after Close.
	// An error that ctx brought about matches ctx's error as well. If ctx or the wait ends in an
	// outage, the error matches ErrUnavailable, and not ErrNotAcquired.
	Lock(ctx context.Context, key string, opts ...LockOption) (*Lease, error)

	// TryLock makes one attempt and does not wait for a holder, whatever WithWait is. If a process
	// keeps the lock unused ([WithSticky]), TryLock asks for it, and tries once more. Where Lock
	// re-enters, TryLock does.
	//
	// It fails with [ErrNotAcquired] if the key is taken: without asking the store while this Locker
	// holds key or queues for it. It fails with [ErrUnavailable] after one failed attempt: if the store
	// hangs, after 4 s at most, or after the TTL if that is shorter.
	TryLock(ctx context.Context, key string, opts ...LockOption) (*Lease, error)

	// Close refuses new Locks and ends waiting ones with ErrClosed. Held leases
	// end (their Lost closes) but their keys are not deleted under critical sections
	// that may still run: their own Unlock, which still works, or the TTL frees
	// them. Locks that [WithSticky] keeps unused are released. Close is idempotent, returns within 5 s and
	// leaves nothing of the Locker running. It returns nil, or ErrUnavailable if the driver did not close
	// well and in time. The client given to the constructor stays the caller's.
	Close() error
}

// Do runs fn while holding key. The context given to fn ends when the lease is lost, with a cause that
// matches [ErrLost]. Lock under that context re-enters, and [LeaseFromContext] returns the lease and so
// its token. If fn calls Lock of key with the ctx that was given to Do, and not with its own, it waits
// for itself, unless that ctx re-enters, too. Do releases the lock when fn returns, also when fn
// panics, and also when ctx has ended.
//
// If fn ran and the lock was given back, Do returns fn's error as it is. Else the error is a [*DoError]:
// its Ran reports whether fn ran. It matches fn's error and, after a loss, [ErrLost], also where fn returned
// nil. If fn's error contains a DoError of an inner Do, the outer Do wraps it in a DoError of its own.
func Do(ctx context.Context, l Locker, key string, fn func(ctx context.Context) error, opts ...LockOption) error {
	if l == nil {
		return &DoError{Key: key, Err: errDoNeeds}
	}
	return doHolding(ctx, key, fn, func() (held, error) { return l.Lock(ctx, key, opts...) })
}

var errDoNeeds = invalid("Do needs a context, a Locker and a function; one of them is nil")

// held is the lease, or the leases, under which fn of a Do runs.
type held interface {
	Unlock(ctx context.Context) error
	Context(parent context.Context) context.Context
}

// doHolding runs fn for every kind of Do; see the function [Do] for the rules. take takes the lock.
func doHolding(ctx context.Context, key string, fn func(ctx context.Context) error, take func() (held, error)) (err error) {
	if ctx == nil || fn == nil {
		return &DoError{Key: key, Err: errDoNeeds}
	}
	lease, err := take()
	if err != nil {
		return &DoError{Key: key, Err: err}
	}
	defer func() {
		unlocked := lease.Unlock(ctx)
		var within *DoError
		if unlocked != nil || errors.As(err, &within) {
			if unlocked != nil {
				unlocked = fmt.Errorf("the lock was not given back: %w", unlocked)
			}
			err = &DoError{Key: key, Ran: true, Err: errors.Join(err, unlocked)}
		}
	}()
	return fn(lease.Context(ctx))
}

package locker

import (
	"context"
	"slices"
	"sync"

	"github.com/distlock/locker/driver"
)

// RWLock is a lock of many readers or one writer. Neither keeps the other out for ever: within a
// Locker they enter in the order in which they came, and a writer that waits keeps out the
// readers of all processes that came after it.
//
// With a strategy that keeps permits (memory, hashreentrant, setnx, blpop, postgres, mysql, etcd; see [Semaphore]) a
// reader takes one permit of many, and a writer all of them. Readers of all processes are inside together. Each has a
// lease of its own, with the options that its call was given. A free lock costs a reader or a writer one round trip,
// and so does its Unlock; with mysql and etcd it is more at times. A plain Lock of the key excludes readers and
// writers.
//
// With other strategies the readers of one Locker share a lease: it is renewed, has the TTL and the margin that the
// first of them asked for and no limit, and is lost for all of them. Only the readers of one Locker are inside
// together, and processes take turns, unless the driver is a [driver.HoldCounter]. A
// call costs three round trips, and its Unlock one: it first takes the lock on the
// key with ":gate" behind it.
//
// A reader's fencing token is greater than the tokens of all writers before it. A writer's token is greater
// than the tokens of all readers and writers before it.
type RWLock struct {
	l      Locker // which locks: e, or what wraps it
	e      *Client
	key    string
	gated  bool     // the driver keeps no permits
	others sync.Map // for capacity
}

// NewRWLock returns the lock of readers and writers on key. l is a [Client], or a [Wrapper] of
// one: then each Lock goes through the wrapper, which has to pass contexts and options on. A key has
// one use: as an RWLock, as a [Semaphore] or as a plain lock.
func NewRWLock(l Locker, key string) (*RWLock, error) {
	e, err := clientOf("NewRWLock", l, key)
	if err != nil {
		return nil, err
	}
	_, permits := e.driver.(driver.PermitKeeper)
	return &RWLock{l: l, e: e, key: key, gated: !permits}, nil
}

// Lock waits as the writer, with [Locker].Lock's options and errors; WithWait bounds the wait as
// a whole. Under the context of the writer's lease it re-enters. Under the context of a reader's
// lease it fails with [ErrInvalid], since a reader that waits until all readers have left waits
// for itself.
func (rw *RWLock) Lock(ctx context.Context, opts ...LockOption) (*Lease, error) {
	switch {
	case ctx == nil || rw.zero():
		return nil, invalid("Lock needs a context, and a lock that NewRWLock has made")
	case rw.gated:
		return rw.gateLock(ctx, ctx, opts)
	}
	return rw.l.Lock(ctx, rw.key, rw.taking(driver.MaxPermits, opts)...)
}

// RLock waits as a reader. Under the context of a lease that RLock or Lock has returned it
// re-enters. Where readers share a lease it refuses options that limit the lease, with [ErrInvalid].
func (rw *RWLock) RLock(ctx context.Context, opts ...LockOption) (*Lease, error) {
	switch {
	case ctx == nil || rw.zero():
		return nil, invalid("RLock needs a context, and a lock that NewRWLock has made")
	case rw.gated:
		return rw.gateRLock(ctx, opts)
	}
	return rw.l.Lock(ctx, rw.key, rw.taking(1, opts)...)
}

// TryLock locks as Lock does, but makes one attempt and never waits, whatever WithWait is. It fails with
// [ErrNotAcquired] while others are inside, and while others of this Locker wait.
func (rw *RWLock) TryLock(ctx context.Context, opts ...LockOption) (*Lease, error) {
	return rw.Lock(ctx, once(opts)...)
}

// TryRLock locks as RLock does, but makes one attempt and never waits, whatever WithWait is. It
// fails with [ErrNotAcquired] while a writer is inside. Where the driver keeps permits, it fails
// while a writer waits, too; elsewhere it may join readers that are inside.
func (rw *RWLock) TryRLock(ctx context.Context, opts ...LockOption) (*Lease, error) {
	return rw.RLock(ctx, once(opts)...)
}

// Do runs fn as the writer; see the function [Do] for its rules.
func (rw *RWLock) Do(ctx context.Context, fn func(ctx context.Context) error, opts ...LockOption) error {
	return doHolding(ctx, rw.name(), fn, func() (held, error) { return rw.Lock(ctx, opts...) })
}

// RDo runs fn as a reader; see the function [Do] for its rules.
func (rw *RWLock) RDo(ctx context.Context, fn func(ctx context.Context) error, opts ...LockOption) error {
	return doHolding(ctx, rw.name(), fn, func() (held, error) { return rw.RLock(ctx, opts...) })
}

func (rw *RWLock) zero() bool { return rw == nil || rw.e == nil }

func (rw *RWLock) name() string {
	if rw.zero() {
		return ""
	}
	return rw.key
}

func (rw *RWLock) taking(n int, opts []LockOption) []LockOption {
	what := "lock"
	if n == 1 {
		what = "lock as a reader"
	}
	return append(slices.Clip(opts), withCapacity(capacity{permits: n, limit: driver.MaxPermits, what: what, others: &rw.others}))
}

// once returns opts for a call that does not wait.
func once(opts []LockOption) []LockOption { return append(slices.Clip(opts), WithWait(0)) }

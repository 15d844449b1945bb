package locker

import (
	"context"
	"slices"
	"sync"

	"github.com/distlock/locker/driver"
)

// Semaphore limits how many permits of a key are out at the same time, over all processes. A caller
// takes one permit or more. It needs a strategy that keeps permits: memory, hashreentrant, setnx, blpop,
// postgres, mysql or etcd, or a driver that is a [driver.PermitKeeper].
//
// A permit is a lease like any other: it has a TTL, is renewed, may be lost, and is given back by its
// Unlock. The permits of a process that died are free after their TTL. A free permit costs one round trip,
// and so does its release, whatever the number of permits; with mysql and etcd it is more at times. A caller
// that waits costs what a Lock that waits does.
//
// Within a Locker callers are served first come, first served, and with blpop and etcd over all processes. With
// other strategies the first process that asks wins. But no caller waits for ever: once a caller waits for several
// permits, or for more than a second for one permit, the permits that it asks for are kept free for it, and
// refused to later callers.
//
// The newest caller sets the number of permits. If the number shrinks, permits that are out
// stay out, and nobody is let in until enough have come back. A caller is never let in past the number that it
// names itself. The Logger gets a warning when processes differ.
//
// The fencing token of a permit is unique. It is no fence: holders with smaller tokens are inside rightfully,
// and a resource must not refuse them. A hand-over inside the process (see [WithHandOver]) gives a
// token that is smaller than those that other processes have been granted meanwhile.
type Semaphore struct {
	l       Locker // which locks: e, or what wraps it
	e       *Client
	key     string
	permits int
	others  sync.Map // for capacity
}

// MaxPermits is the most permits that a [Semaphore] has: 1,000,000,000.
const MaxPermits = driver.MaxPermits

// NewSemaphore returns the semaphore on key, of 1 to [MaxPermits] permits. l is a [Client], or a
// [Wrapper] of one: then each call goes through the Lock and TryLock of the wrapper, which has to pass contexts and
// options on. It fails with [ErrInvalid] and [errors.ErrUnsupported] if the strategy of l keeps no permits. A key has
// one use: a plain Lock of it waits until all permits are back, and a caller for permits waits for a plain Lock.
func NewSemaphore(l Locker, key string, permits int) (*Semaphore, error) {
	e, err := clientOf("NewSemaphore", l, key)
	switch {
	case err != nil:
		return nil, err
	case permits < 1 || permits > MaxPermits:
		return nil, invalid("NewSemaphore(%q, %d): want 1 to %d permits", key, permits, MaxPermits)
	}
	if err := e.keepsPermits("NewSemaphore"); err != nil {
		return nil, err
	}
	return &Semaphore{l: l, e: e, key: key, permits: permits}, nil
}

// Acquire waits for a permit, with [Locker].Lock's options and errors. Unlock of the lease gives the
// permit back. There is no re-entry: each call gets a permit of its own, under any context. Under
// the context of a plain Lock of the key it fails with [ErrInvalid].
func (s *Semaphore) Acquire(ctx context.Context, opts ...LockOption) (*Lease, error) {
	return s.AcquireN(ctx, 1, opts...)
}

// AcquireN waits for n permits, 1 to the number given to NewSemaphore. All are granted at once, by one
// command. They are one lease, and come back together.
func (s *Semaphore) AcquireN(ctx context.Context, n int, opts ...LockOption) (*Lease, error) {
	opts, err := s.taking(ctx, n, opts)
	if err != nil {
		return nil, err
	}
	return s.l.Lock(ctx, s.key, opts...)
}

// TryAcquire makes one attempt to get a permit and never waits, whatever WithWait is. It fails with
// [ErrNotAcquired] if none is free. While others of this Locker wait for one, it fails without
// asking the store.
func (s *Semaphore) TryAcquire(ctx context.Context, opts ...LockOption) (*Lease, error) {
	opts, err := s.taking(ctx, 1, opts)
	if err != nil {
		return nil, err
	}
	return s.l.TryLock(ctx, s.key, opts...)
}

// Do runs fn while it has one permit; see the function [Do] for its rules. For more permits use [Semaphore.AcquireN].
func (s *Semaphore) Do(ctx context.Context, fn func(ctx context.Context) error, opts ...LockOption) error {
	key := ""
	if s != nil {
		key = s.key
	}
	return doHolding(ctx, key, fn, func() (held, error) { return s.Acquire(ctx, opts...) })
}

// Available returns how many permits are free: others may take them before the caller does. It
// sends one command; on Redis one more for every few hundred permits that have ended and were not given back. It fails with
// [ErrConflict] if the key is held as a lock, with [ErrUnavailable] and with [ErrClosed]. It waits for 4 s at most.
func (s *Semaphore) Available(ctx context.Context) (int, error) {
	if ctx == nil || s == nil || s.e == nil {
		return 0, invalid("Available needs a context, and a semaphore that NewSemaphore has made")
	}
	e, full := s.e, s.e.set.prefix+s.key
	c := &call{e: e, callSettings: e.set.call, ctx: ctx, caller: ctx, op: "count the permits of", key: full, s: e.stripeOf(full)}
	if !c.mayEnter() {
		return 0, c.fail(ErrClosed, nil, "")
	}
	defer c.leave()
	var out int
	err := c.command(commandTimeout, func(ctx context.Context) (err error) {
		out, _, err = e.driver.(driver.PermitKeeper).Permits(ctx, full)
		return err
	})
	if err != nil {
		return 0, c.unavailable(err, "")
	}
	return max(s.permits-out, 0), nil
}

// taking returns opts for a call that takes n permits.
func (s *Semaphore) taking(ctx context.Context, n int, opts []LockOption) ([]LockOption, error) {
	switch {
	case ctx == nil || s == nil || s.l == nil:
		return nil, invalid("Acquire needs a context, and a semaphore that NewSemaphore has made")
	case n < 1 || n > s.permits:
		return nil, invalid("AcquireN(%d): want 1 to %d permits, of which there are %d", n, s.permits, s.permits)
	}
	what := "acquire a permit of"
	if n > 1 {
		what = "acquire permits of"
	}
	return append(slices.Clip(opts), withCapacity(capacity{permits: n, limit: s.permits, alone: true, what: what, others: &s.others})), nil
}

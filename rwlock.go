package locker

import (
	"context"
	"slices"
)

// RWLock is a lock of many readers or one writer. They are let in first come, first served,
// as the strategy's Locks are, so that neither keeps the other out for ever: a reader that
// comes after a waiting writer waits for it.
//
// A reader is a Lock of the key for an owner that all readers share, see
// [ContextWithOwner]. With hashreentrant and blpop the readers of all processes are inside
// together; with other strategies those of one Locker are, and processes take turns. A
// writer is an ordinary Lock, and so a plain Lock of the key excludes readers and writers; under a
// reader's context it is refused as a writer is.
//
// The readers of one Locker share a lease in the store: it is renewed, has the TTL that the
// first asked for and no limit, and is lost for all of them.
//
// A call with WithWait(0) is one attempt at the lock itself, past those that wait. Any other
// waits at a gate first, the lock on the key with ":gate" behind it, which it gives
// back once it is inside. So both cost three round trips, and one for their Unlock. A reader's
// fencing token is greater than that of each writer before it, and the other way round.
type RWLock struct {
	l   Locker // which locks: e, or what wraps it
	e   *Client
	key string
}

const readers = "locker readers" // the owner

// NewRWLock returns the lock of readers and writers on key. l is a [Client], or a [Wrapper] of
// one: then each Lock, of the gate, too, goes through the wrapper, which has to pass contexts
// and options on.
func NewRWLock(l Locker, key string) (*RWLock, error) {
	e, err := clientOf("NewRWLock", l, key)
	if err != nil {
		return nil, err
	}
	return &RWLock{l, e, key}, nil
}

// Lock waits as the writer, with [Locker].Lock's options and errors; WithWait bounds the
// wait as a whole. Under the context of the writer's lease it re-enters. Under that of a
// reader's it fails with [ErrInvalid], since a reader that waits until all readers have left
// waits for itself.
func (rw *RWLock) Lock(ctx context.Context, opts ...LockOption) (*Lease, error) {
	return rw.lock(ctx, ctx, opts)
}

// RLock waits as a reader. Under the context of a lease that RLock or Lock has returned it
// re-enters. It refuses options that limit the lease, with [ErrInvalid].
func (rw *RWLock) RLock(ctx context.Context, opts ...LockOption) (*Lease, error) {
	if ctx == nil || rw.zero() {
		return nil, invalid("RLock needs a context, and a lock that NewRWLock has made")
	}
	set := defaultSettings()
	c, err := set.forCall(opts)
	switch {
	case err != nil:
		return nil, err
	case c.renewals != noLimit || c.maxHold != 0:
		return nil, invalid("RLock: readers share a lease, which no option of one of them may limit")
	}
	opts = append(slices.Clip(opts), WithRenewal(), WithUnlimitedHold()) // whatever the Locker's are
	return rw.lock(ctx, &ownerCtx{ctx, readers, true}, opts)
}

func (rw *RWLock) zero() bool { return rw == nil || rw.e == nil }

// lock locks the key under as, which ctx is or an owner was added to.
func (rw *RWLock) lock(ctx, as context.Context, opts []LockOption) (*Lease, error) {
	if ctx == nil || rw.zero() {
		return nil, invalid("Lock needs a context, and a lock that NewRWLock has made")
	}
	full := rw.e.set.prefix + rw.key
	if rw.e.readerIn(ctx, full) != nil {
		return rw.l.Lock(as, rw.key, opts...) // re-enters, or is refused as a writer
	}
	if outer, _ := ctx.Value(carried{e: rw.e, key: full}).(*Lease); outer != nil {
		return rw.l.Lock(ctx, rw.key, opts...)
	}
	wait, err := waitOf(rw.e, opts)
	switch {
	case err != nil:
		return nil, err
	case rw.e.holdsAsNamed(ctx, full):
		return rw.l.Lock(ctx, rw.key, opts...)
	case wait.isTry():
		return rw.l.Lock(as, rw.key, opts...)
	}
	gate, err := enterGate(ctx, rw.l, rw.key, wait)
	if err != nil {
		return nil, err
	}
	defer gate.giveBack(ctx)
	return rw.l.Lock(as, rw.key, wait.rest(opts)...)
}

// readerIn is the reader's lease on a key that ctx carries, whatever owner it names.
func (e *Client) readerIn(ctx context.Context, full string) *Lease {
	l, _ := ctx.Value(carried{e: e, key: full, named: true, owner: readers}).(*Lease)
	return l
}

// holdsAsNamed reports whether an owner that ctx names holds the key in this Locker: its
// callers re-enter without a lease's context.
func (e *Client) holdsAsNamed(ctx context.Context, full string) bool {
	owner, named, _ := explicitOwner(ctx)
	s := e.stripeOf(full)
	s.mu.Lock()
	defer s.mu.Unlock()
	ks := s.keys[full]
	if ks == nil || !named {
		return false
	}
	held, lost := ks.ofOwner(owner)
	return held != nil || lost != nil
}

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
	e   *engine
	key string
}

const (
	gateSuffix = ":gate"
	readers    = "locker readers" // the owner
)

// NewRWLock returns the lock of readers and writers on key. l is a Locker that [New] or a
// strategy has made.
func NewRWLock(l Locker, key string) (*RWLock, error) {
	e, err := engineOf("NewRWLock", l, key)
	if err != nil {
		return nil, err
	}
	return &RWLock{e, key}, nil
}

// engineOf is l, if [New] has made it, and key and its gate may be locked.
func engineOf(who string, l Locker, key string) (*engine, error) {
	e, ok := l.(*engine)
	if !ok {
		return nil, invalid("%s needs a Locker as New returns it, not a %T", who, l)
	}
	if err := checkKey(key, e.set.prefix+key); err != nil {
		return nil, err
	}
	return e, checkKey(key, e.set.prefix+key+gateSuffix)
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
		return rw.e.Lock(as, rw.key, opts...) // re-enters, or is refused as a writer
	}
	if outer, _ := ctx.Value(carried{e: rw.e, key: full}).(*Lease); outer != nil {
		return rw.e.Lock(ctx, rw.key, opts...)
	}
	wait, err := waitOf(rw.e, opts)
	switch {
	case err != nil:
		return nil, err
	case rw.e.holdsAsNamed(ctx, full):
		return rw.e.Lock(ctx, rw.key, opts...)
	case wait.isTry():
		return rw.e.Lock(as, rw.key, opts...)
	}
	gate, err := rw.e.enterGate(ctx, rw.key, wait)
	if err != nil {
		return nil, err
	}
	defer gate.giveBack(ctx)
	return rw.e.Lock(as, rw.key, wait.rest(opts)...)
}

// readerIn is the reader's lease on a key that ctx carries, whatever owner it names.
func (e *engine) readerIn(ctx context.Context, full string) *Lease {
	l, _ := ctx.Value(carried{e: e, key: full, named: true, owner: readers}).(*Lease)
	return l
}

// holdsAsNamed reports whether an owner that ctx names holds the key in this Locker: its
// callers re-enter without a lease's context.
func (e *engine) holdsAsNamed(ctx context.Context, full string) bool {
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

// enterGate locks the gate before key.
func (e *engine) enterGate(ctx context.Context, key string, wait waiting) (*Leases, error) {
	gate, err := e.Lock(bareCtx{ctx}, key+gateSuffix, append(wait.rest(nil), WithRenewal(), WithUnlimitedHold())...)
	if err != nil {
		return nil, err
	}
	return &Leases{all: []*Lease{gate}}, nil
}

// bareCtx has no leases to be re-entered, and names no owner.
type bareCtx struct{ context.Context }

func (c bareCtx) Value(key any) any {
	switch key.(type) {
	case innermost, contextOf, carried, ownerKey, readsKey:
		return nil
	}
	return c.Context.Value(key)
}

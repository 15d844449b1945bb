package locker

import (
	"context"
	"slices"
)

// An RWLock whose driver keeps no permits. A reader is a Lock of the key for an owner that all
// readers share, and a writer is an ordinary Lock. Both wait at a gate first, a lock on the key with
// gateSuffix, so that they are let in in the order in which they came; they give the gate back
// once they are inside. A call with WithWait(0) is one attempt at the lock itself, past those that wait.

const readers = "locker readers" // the owner

func (rw *RWLock) gateRLock(ctx context.Context, opts []LockOption) (*Lease, error) {
	set := rw.e.set
	set.call.renewals, set.call.maxHold = noLimit, 0 // the Locker's limits do not count for readers
	c, err := set.forCall(opts)
	switch {
	case err != nil:
		return nil, err
	case c.renewals != noLimit || c.maxHold != 0:
		return nil, invalid("RLock: with %s readers share a lease, which no option of one of them may limit", rw.e.name)
	}
	opts = append(slices.Clip(opts), WithRenewal(), WithUnlimitedHold()) // whatever the Locker's are
	return rw.gateLock(ctx, &ownerCtx{ctx, readers, true}, opts)
}

// gateLock locks the key under as, which ctx is or an owner was added to.
func (rw *RWLock) gateLock(ctx, as context.Context, opts []LockOption) (*Lease, error) {
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

// readerIn returns the reader's lease on a key that ctx carries, whatever owner it names.
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

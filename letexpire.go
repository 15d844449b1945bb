package locker

import (
	"context"
)

// LetExpire ends the lease and leaves the key locked in the store until its TTL is over,
// counted from the grant or the last renewal: for what must not be done again for a while.
// The Locker forgets the lock at once: the lock is not
// renewed any more (a renewal that is under way may still count), its end is no loss, and
// callers in this process wait for the key as for another process's.
//
// LetExpire sends the store no command, with one exception: a lease that was not renewed yet may last for less than
// the TTL (see [Lease.Deadline]). Then the Locker renews it once, in the background, and the TTL counts from
// there. If the store cannot be reached, or the process ends before that without Close, the key is free earlier.
//
// Contexts of the lease end as after [Lease.Unlock], and a later Unlock returns
// [ErrNotHeld]. Of several leases on one claim, the last to end decides: Unlock
// frees the key, LetExpire leaves it.
//
// It returns [ErrLost] when the lease was lost before, and [ErrNotHeld] when the lease has
// ended by Unlock or LetExpire, or an Unlock of it was tried. After Close of the Locker it returns nil
// unless the lease was lost already.
func (l *Lease) LetExpire() error {
	if l.zero() {
		return errZeroLease("LetExpire")
	}
	ctxs, follow, answer := l.letExpire()
	if follow != nil {
		follow(l.claim)
	}
	for ctx := range ctxs { // last: their parents may be the user's own types, and block
		ctx.end(context.Canceled)
	}
	return answer
}

// letExpire returns what is to follow in the background, or nil.
func (l *Lease) letExpire() (ctxs leaseContexts, follow func(*claim), answer error) {
	c := l.claim
	defer c.lock().Unlock()
	if l.state != leaseHeld {
		return nil, nil, l.notHeld("let expire")
	}
	ctxs = l.ctxs
	l.ctxs, l.state = nil, leaseDone
	c.drop(l)
	l.last = c.leases == nil
	switch {
	case c.state == claimLost:
		_, answer = c.owedWhenLost(l.last)
	case l.last:
		if c.lasts < c.TTL {
			follow = c.e.lengthen
		}
		// As far as this process is concerned, the claim is freed.
		c.release(claimFreed)
		c.setOutcome(nil)
		c.reportEnd(context.Background(), EventLetExpire, nil)
		c.s.detach(c)
	case c.counted():
		follow = c.e.correctHolds
	}
	return ctxs, follow, answer
}

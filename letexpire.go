package locker

import (
	"context"
)

// LetExpire ends the lease and leaves the key locked in the store until its TTL is over,
// counted from the grant or the last renewal: for what must not be done again for a while.
// It sends the store no command. The Locker forgets the lock at once: the lock is not
// renewed any more (a renewal that is under way may still count), its end is no loss, and
// callers in this process wait for the key as for another process's.
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
	ctxs, recount, answer := l.letExpire()
	if recount {
		l.claim.e.correctHolds(l.claim)
	}
	for ctx := range ctxs { // last: their parents may be the user's own types, and block
		ctx.end(context.Canceled)
	}
	return answer
}

// letExpire reports whether the store's hold count is to follow.
func (l *Lease) letExpire() (ctxs leaseContexts, recount bool, answer error) {
	c := l.claim
	defer c.lock().Unlock()
	if l.state != leaseHeld {
		return nil, false, l.notHeld("let expire")
	}
	ctxs = l.ctxs
	l.ctxs, l.state = nil, leaseDone
	c.drop(l)
	l.last = c.leases == nil
	switch {
	case c.state == claimLost:
		_, answer = c.owedWhenLost(l.last)
	case l.last:
		// As far as this process is concerned, the claim is freed.
		c.release(claimFreed)
		c.setOutcome(nil)
		c.reportEnd(context.Background(), EventLetExpire, nil)
		c.s.detach(c)
	default:
		recount = c.counted()
	}
	return ctxs, recount, answer
}

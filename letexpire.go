package locker

import "context"

// LetExpire ends the lease and leaves the key locked in the store until its TTL is over,
// counted from the grant or the last renewal: for what must not be done again for a while.
// It sends the store no command. The Locker forgets the lock at once: the lock is not
// renewed any more (a renewal that is under way may still count), its end is no loss, and
// callers in this process wait for the key as for another process's.
//
// Contexts of the lease end as after [Lease.Unlock], and a later Unlock returns
// [ErrNotHeld]. Of several leases on one acquisition, the last to end decides: Unlock
// frees the key, LetExpire leaves it.
//
// It returns [ErrLost] when the lease was lost before, and [ErrNotHeld] when the lease has
// ended by Unlock or LetExpire, or an Unlock of it was tried. After Close of the Locker it returns nil
// unless the lease was lost already.
func (l *Lease) LetExpire() error {
	if l.zero() {
		return errZeroLease("LetExpire")
	}
	c := l.claim
	s := c.e.stripeOf(c.Key)
	s.enter(true)
	defer s.exit()
	c.alive()
	c.mu.Lock()
	if l.state != leaseHeld {
		c.mu.Unlock()
		return l.notHeld("let expire")
	}
	ctxs := l.ctxs
	l.ctxs, l.state = nil, leaseDone
	c.drop(l)
	l.last = c.leases == nil
	var answer error
	lost, last := c.state == claimLost, l.last
	switch {
	case lost:
		_, answer = c.owedWhenLost(last)
	case last:
		c.abandon()
	}
	c.mu.Unlock()
	switch {
	case lost && last:
		s.forgetLost(c)
	case last:
		s.detach(c)
	case !lost && c.e.counter != nil:
		c.e.correctHolds(c) // the store's count follows
	}
	ctxs.end(context.Canceled) // last: their parents may be the user's own types, and block
	return answer
}

// abandon ends a claim that is held, and owes the store nothing: as far as this process
// is concerned it is freed. It needs mu.
func (c *claim) abandon() {
	c.state, c.outcome = claimFreed, nil
	c.end.Store(int64(never))
	c.e.sched.Remove(&c.entry)
	c.told = true
	c.e.notices.end(context.Background(), c.event(EventLetExpire, nil), c.grantKept)
}

package locker

import (
	"errors"
	"time"
)

// tryLock does what TryLock promises: one attempt, none if this process can answer by itself. A holder that may not be
// using the lock is asked for it, and the store once more.
func (c *call) tryLock() (*Lease, error) {
	if l, err := c.local(); l != nil || err != nil {
		return l, err
	}
	l, asked, sent, err := c.tryOnce()
	if l == nil && err == nil && asked && c.afterAsking(sent) {
		l, _, _, err = c.tryOnce()
	}
	if l != nil || err != nil {
		return l, err
	}
	// The holder may be a goroutine with the same owner.
	if l, err := c.local(); l != nil || err != nil {
		return l, err
	}
	return nil, c.fail(ErrNotAcquired, errTaken, "")
}

// tryOnce asks the store, at the time sent. It returns neither a lease nor an error if the call was
// refused; asked says that the holder was asked for the lock.
func (c *call) tryOnce() (l *Lease, asked bool, sent time.Duration, err error) {
	cl := c.newClaim()
	a, sent, err := c.acquire(cl, false, 0)
	switch {
	case err != nil:
		return nil, false, sent, c.unavailable(err, "")
	case !a.Granted:
		return nil, c.askHolder(a), sent, nil
	}
	switch l, err = c.grant(cl, a, sent); {
	case err == nil:
		return l, false, sent, nil
	case !errors.Is(err, errMerge):
		return nil, false, sent, c.unavailable(err, "")
	}
	return nil, false, sent, nil
}

// local answers TryLock without the store, if it can.
func (c *call) local() (*Lease, error) {
	mine, taken, err := c.lookUp()
	switch {
	case err != nil:
		return nil, err
	case mine != nil:
		l, err := c.share(mine, true)
		switch {
		case errors.Is(err, errReadersLost):
			return nil, nil
		case errors.Is(err, errGone):
			return nil, c.fail(ErrNotAcquired, errLocal, "")
		}
		return l, err
	case taken:
		return nil, c.fail(ErrNotAcquired, errLocal, "")
	}
	return nil, nil
}

// lookUp returns the lease that the call re-enters, or else whether this process holds the key
// or queues for it. It fails if the call's owner has lost the key.
func (c *call) lookUp() (mine *Lease, taken bool, err error) {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	if !c.enter() {
		return nil, false, c.fail(ErrClosed, nil, "")
	}
	ks := c.s.keys[c.key]
	if ks == nil {
		return nil, false, nil
	}
	current := ks.present()
	if c.named {
		var lost *claim
		if mine, lost = ks.ofOwner(c.owner); lost != nil {
			return nil, false, c.lost(lost.outcome())
		}
	}
	if mine != nil && !c.mayJoin(mine.claim) {
		return nil, false, c.failPart()
	}
	// A named owner may hold from another process, and re-enter here.
	queued := !ks.empty() && !(c.named && c.e.counter != nil)
	if c.limit > 0 {
		queued = !ks.empty() && ks.full
	}
	return mine, queued || current != nil && ks.blocked(c, c.e.sched.Now()), nil
}

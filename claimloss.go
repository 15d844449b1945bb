package locker

import "context"

type lossKind uint8

const (
	lossDenied  lossKind = iota // the store says so: nothing of ours is there
	lossExpired                 // the deadline passed; the key may linger
	lossLimit                   // a limit of the caller's own: the key is ours till the deadline
	lossClosed                  // the Locker was closed: the key is ours till the deadline
)

// expire loses the claim if its end has come. It needs the mutex.
func (c *claim) expire() aftermath {
	if c.state != claimHeld || c.inTime() {
		return nil
	}
	_, kind, cause := c.ending()
	return c.lose(kind, cause)
}

// lose ends the claim and its leases for cause, if it is held, and detaches it from its key.
// It needs the mutex.
func (c *claim) lose(kind lossKind, cause error) (after aftermath) {
	if c.state != claimHeld {
		return nil
	}
	c.state, c.lossKind = claimLost, kind
	c.setOutcome(&lossError{c.e.name, c.userKey(), cause})
	c.end.Store(0)
	c.e.sched.Remove(&c.entry)
	c.reportEnd(context.Background(), EventLost, c.outcome())
	c.closeAtRisk()
	c.hush()
	c.unkeep()
	if c.e.detection != nil {
		c.undetect()
	}
	for l := c.leases; l != nil; l = l.next {
		l.lostBefore = true
		if l.lost != nil {
			close(l.lost)
		}
		if l.ctxs != nil {
			after = append(after, lostContexts{l.ctxs, c.outcome()})
			l.ctxs = nil
		}
	}
	c.s.detach(c)
	return after
}

// aftermath holds the contexts that end with a loss, once all leases are lost. A caller that
// loses claims of several stripes runs it after the last.
type aftermath []lostContexts

type lostContexts struct {
	ctxs  leaseContexts
	cause error
}

// run starts a goroutine for each context, whose parent may be the user's own type, and block.
// It may be called under the mutex.
func (a aftermath) run() {
	for _, lost := range a {
		for ctx := range lost.ctxs {
			go ctx.end(lost.cause)
		}
	}
}

// denied notes that the store says that c does not hold the key. It returns the loss; nil if c
// was given back before.
func (c *claim) denied() error {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	c.lose(lossDenied, ErrDenied).run()
	if c.state != claimLost {
		return nil
	}
	return c.outcome()
}

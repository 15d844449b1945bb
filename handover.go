package locker

import (
	"context"
	"time"
)

// Hand-over inside the process. The last Unlock of a claim may leave it to the next
// waiter of this Locker: the claim is then held without a lease, which is to say that it
// is offered, until that waiter takes it. In the store nothing changes, so whatever comes
// of a command in flight reaches the claim and with it the lease that it has by then: a
// renewal that is denied, an expiry, a crash.
//
// All of it happens under the stripe's mutex and the claim's. A waiter that gives up
// leaves the queue, and the next one finds the offer; with the last one the claim is
// released.

// WithHandOver limits the hand-overs inside the process. When another goroutine of the
// process waits for the lock with the same TTL and renewal, and neither has a named owner,
// the last Unlock leaves the lock to that goroutine without asking the store. It
// does so at most n times in a row, 1 to [MaxHandOvers], and for d after the store
// granted the lock, above 0 and at most 1 s; then other processes get their turn, and
// wait that much longer for it. Each lease has its own owner, token and limits. With a
// store that cannot reserve tokens there are hand-overs only under [WithoutFencing]. Default
// 16 times and 20 ms.
func WithHandOver(n int, d time.Duration) Option {
	return option(func(o *settings) {
		if n < 1 || n > MaxHandOvers || d <= 0 || d > time.Second {
			o.refuse("WithHandOver(%d, %v): 1 to %d hand-overs, within at most 1s; use WithoutHandOver for none", n, d, MaxHandOvers)
			return
		}
		o.handOvers, o.handOverFor = n, d
	})
}

// WithoutHandOver lets each Unlock that frees a lock ask the store.
func WithoutHandOver() Option {
	return option(func(o *settings) { o.handOvers = 0 })
}

// tokensFor is how many tokens an attempt asks for: as many as there may be holds, if
// others wait behind it. It needs s.mu.
func (c *call) tokensFor(ks *keyState) int {
	if c.named || c.e.set.noFencing || c.e.set.handOvers == 0 || ks.head == ks.tail {
		return 0
	}
	return 1 + c.e.set.handOvers
}

// setTurn notes what the grant allows; tokens are those that the store has reserved. Where
// the store lets in whoever names the claim's owner, the first lease of a claim that may be
// handed over gets an owner that the store does not know, as those after it do: no other
// process can then share a lock that has passed to the next caller.
func (c *claim) setTurn(tokens int) {
	n := c.e.set.handOvers
	if !c.e.set.noFencing {
		n = min(n, max(tokens-1, 0))
	}
	c.handOvers = int32(n)
	if n > 0 && c.e.counter != nil && !c.named {
		c.firstHold.owner = c.e.newID()
	}
}

// isOffered needs s.mu.
func (c *claim) isOffered() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.offered()
}

// offered needs mu.
func (c *claim) offered() bool { return c.state == claimHeld && c.leases == nil }

// suits reports whether w may take over the claim as it is in the store.
func (c *claim) suits(w *call) bool {
	return !c.named && !w.named && w.ttl == c.TTL && w.renewals == c.renewable
}

// offer leaves the claim of l, of which it is the last lease, to the next waiter, and
// reports whether it did. It does not if a command of this Locker about the key is under
// way, so that its answer finds what it expects; nor late in a lease.
func (s *stripe) offer(ctx context.Context, l *Lease) bool {
	c := l.claim
	if c.named || c.e.set.handOvers == 0 {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	ks := s.keys[c.Key]
	if s.closed || ks == nil || ks.current != c {
		return false
	}
	next := ks.next()
	if next == nil || ks.opening || ks.attempts > 0 || !c.suits(next) {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.e.sched.Now()
	switch {
	case c.state != claimHeld || c.leases != l || l.next != nil || len(c.turn) > 0:
		return false
	case c.inRenewal && c.renewable != noLimit: // it counts for the present hold
		return false
	case c.handOvers == 0 || now-c.firstHold.granted >= c.e.set.handOverFor || c.deadline-now < c.lasts/2 || now >= time.Duration(c.end.Load()):
		return false
	}
	c.handOvers--
	c.drop(l)
	l.state = leaseDone
	c.told = true
	ev := c.event(EventReleased, nil)
	ev.HandOver = true
	c.e.notices.end(ctx, ev, c.grantKept)
	if c.limit != never || c.renewals != c.renewable {
		c.limit, c.renewals = never, c.renewable
		c.schedule()
	}
	next.signal()
	return true
}

// take takes the claim that is offered to the call, which is next in the queue. It
// returns nil if that has changed meanwhile. A claim that does not suit the call is
// released, and the call asks the store.
func (c *call) take(ks *keyState) *Lease {
	c.s.mu.Lock()
	cl := ks.current
	if cl == nil || ks.next() != c {
		c.s.mu.Unlock()
		return nil
	}
	if !cl.suits(c) {
		cl = ks.reclaim()
		c.s.mu.Unlock()
		cl.freeUntaken()
		return nil
	}
	cl.mu.Lock()
	now := c.e.sched.Now()
	if !cl.offered() || now >= time.Duration(cl.end.Load()) {
		cl.mu.Unlock()
		c.s.mu.Unlock()
		return nil
	}
	next := &hold{owner: c.e.newID(), token: cl.token, granted: now}
	if next.token != 0 {
		next.token++ // reserved by the grant
	}
	cl.hold, cl.told = next, false
	if c.maxHold > 0 {
		cl.limit = now + c.maxHold
		cl.schedule()
	}
	l := cl.newLease()
	ev := c.event(EventAcquired, next.token, nil)
	ev.HandOver = true
	cl.grantKept = c.e.notices.event(c.ctx, ev)
	cl.mu.Unlock()
	ks.remove(c)
	unwatch := c.s.prune(ks, true)
	c.s.mu.Unlock()
	closeWatch(unwatch)
	return l
}

// reclaim ends the offer of the key's claim, if there is one: freeUntaken has the store
// free it. It needs s.mu.
func (ks *keyState) reclaim() *claim {
	c := ks.current
	if c == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.offered() {
		return nil
	}
	c.state = claimReleasing
	c.end.Store(int64(never))
	c.e.sched.Remove(&c.entry)
	return c
}

// freeUntaken frees, in the background, a claim that no waiter took; nil is none.
func (c *claim) freeUntaken() {
	if c == nil {
		return
	}
	c.e.freeLater(context.Background(), c)
	c.e.stripeOf(c.Key).detach(c)
}

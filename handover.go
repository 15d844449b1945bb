package locker

import (
	"context"
	"sync"
	"time"
)

// Hand-over inside the process. The last Unlock of a claim may leave it to the next
// waiter of this Locker. Until that waiter takes it, the claim is held without a lease: it is
// offered. In the store nothing changes. So the outcome of a command in flight, such as a denied
// renewal, reaches the claim, and with it the lease that the claim has by then. The same is true
// of an expiry and of a crash.
//
// All of it happens under the mutex. A waiter that gives up leaves the queue, and the next
// waiter finds the offer. When the last waiter gives up, the claim is released.

const (
	defaultHandOvers    = 16
	defaultHandOverTime = 20 * time.Millisecond
)

// WithHandOver limits the hand-overs inside the process. When another goroutine waits for the
// lock in the same Locker with the same TTL, margin and renewal, and neither has a named owner,
// the last Unlock leaves the lock to that goroutine without asking the store. It does so at most
// n times in a row, and for at most d after the store granted the lock. n is 1 to [MaxHandOvers];
// d is above 0 and at most 1 s. Then other processes get their turn, by up to d later than
// without hand-overs. Each lease has its own owner, token and limits. With a store that cannot
// reserve tokens there are hand-overs only under [WithoutFencing]. Under [WithSticky] the lock
// may be handed over for longer while no other process asks for it. Default 16 times and 20 ms.
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

// tokensFor returns how many tokens an attempt asks for: as many as there may be tenures, if
// others wait behind it. It needs the mutex.
func (c *call) tokensFor() int {
	if c.named || c.e.set.noFencing || c.e.set.handOvers == 0 || c.described() {
		return 0
	}
	return 1 + c.e.set.handOvers
}

// described reports whether the call has metadata of its own. Then its claim is not handed over, and it takes over
// no claim: the store shows the metadata of the call that asked for the claim.
func (c *call) described() bool { return c.metadata != c.e.set.call.metadata }

// setHandOvers notes what the grant allows; tokens are those that the store has reserved. Where
// the store lets in whoever names the claim's owner, the first lease of a claim that may be
// handed over gets an owner that the store does not know, as those after it do: no other
// process can then share a lock that has passed to the next caller.
func (c *claim) setHandOvers(tokens int) {
	n := c.e.set.handOvers
	if !c.e.set.noFencing {
		n = min(n, max(tokens-1, 0))
	}
	c.handOvers = int32(n)
	if n > 0 && c.counted() && !c.named {
		c.firstTenure.owner = c.e.newID()
	}
}

// offered reports whether the claim is held without a lease. It needs the mutex.
func (c *claim) offered() bool { return c.state == claimHeld && c.leases == nil }

// suits reports whether w may take over the claim as it is in the store.
func (c *claim) suits(w *call) bool {
	return c.Owner == c.ID && w.owner == "" && w.ttl == c.TTL && w.margin() == c.margin() && w.renewals == c.renewable &&
		w.permits == c.Permits && w.limit == c.Limit && !w.described()
}

// offer leaves the claim of l, of which it is the last lease, to the next waiter while hand-overs are left, or keeps it
// for a waiter that may come (sticky.go), and reports whether it did either. It does neither late in a lease, nor while a
// command of this Locker about the key is under way, since the answer is about the present tenure. It needs the mutex.
func (c *claim) offer(ctx context.Context, l *Lease) bool {
	if c.state != claimHeld || c.leases != l || l.next != nil || c.sending || c.s.closed || c.asked() {
		return false
	}
	ks := c.s.keys[c.Key]
	now := c.e.sched.Now()
	next := ks.next()
	if c.Limit > 0 {
		next = ks.heir(now)
	}
	sticks := c.sticks(now)
	switch {
	case ks.queue != nil && (ks.opening || c.Limit == 0 && ks.attempts > 0):
		return false
	case next == nil && !sticks, next != nil && !c.suits(next):
		return false
	case c.inRenewal && c.renewable != noLimit: // it counts for the present tenure
		return false
	case c.deadline-now < (c.lasts-c.margin())/2:
		return false
	case sticks && next == nil:
		c.keep(now)
	case sticks:
	case c.handOvers == 0 || now-c.firstTenure.granted >= c.e.set.handOverFor || c.tokensLeft() == 0:
		return false
	default:
		c.handOvers--
	}
	c.drop(l)
	if c.rare != nil { // what becomes of the claim from here on is no danger to l
		c.rare.atRisk, c.rare.requested = nil, nil
	}
	c.reported = true
	if c.e.notices.wanted {
		ev := c.event(EventReleased, nil)
		ev.HandOver, ev.Kept = next != nil, next == nil
		c.e.notices.end(ctx, ev, c.grantKept)
	}
	if c.rare != nil && c.rare.limit != never || c.renewals != c.renewable {
		c.rarely().limit, c.renewals = never, c.renewable
		c.schedule()
	}
	switch {
	case next == nil:
	case c.Limit > 0:
		c.give(next)
	default:
		next.signal()
	}
	return true
}

// accept takes over the claim that is offered to the call, which is next in the queue. It
// returns nil if that has changed meanwhile. A claim that does not suit the call is
// released, and the call asks the store.
func (c *call) accept() *Lease {
	l, unsuited := c.acceptOffer()
	unsuited.freeUnclaimed()
	return l
}

func (c *call) acceptOffer() (l *Lease, unsuited *claim) {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	cl := c.ks.present()
	switch {
	case c.given != nil:
		if cl = c.take(); cl == nil {
			return nil, nil
		}
	case cl == nil || c.ks.next() != c || !cl.offered():
		return nil, nil
	case !cl.suits(c):
		return nil, c.ks.withdraw()
	}
	return c.takeOver(c.ks, cl, c.e.sched.Now()), nil
}

// passed is a tenure that a claim was left to, and its first lease.
type passed struct {
	tenure
	Lease
}

// takeOver gives the claim, which has no lease, to the call. It needs the mutex.
func (c *call) takeOver(ks *keyState, cl *claim, now time.Duration) *Lease {
	next := &passed{tenure: tenure{owner: c.e.newID(), token: cl.token, granted: now}}
	if next.token != 0 {
		next.token++ // reserved by the grant
	}
	kept := cl.taken()
	cl.tenure, cl.reported = &next.tenure, false
	if c.e.notices.wanted {
		ev := c.event(EventAcquired, next.token, nil)
		ev.HandOver, ev.Kept = !kept, kept
		cl.grantKept = c.e.notices.event(c.ctx, ev)
	}
	cl.begin(now, c.maxHold)
	c.served(ks)
	return cl.add(&next.Lease)
}

// withdraw ends the offer of the key's claim, if there is one, and returns the claim for
// freeUnclaimed, which follows. The queue waits for that release as for an Unlock's. It needs the mutex.
func (ks *keyState) withdraw() *claim {
	c := ks.current
	if c == nil || !c.offered() {
		return nil
	}
	if st := c.stick(); st != nil {
		st.freed = make(chan struct{})
	}
	c.s.beginRelease(c.giveUp())
	return c
}

// giveUp ends the hold of a claim that no waiter has accepted, and returns it for freeUnclaimed, which follows, and
// which Close waits for. It needs the mutex.
func (c *claim) giveUp() *claim {
	c.release(claimReleasing)
	c.s.calls.Add(1)
	return c
}

// freeUnclaimed releases, in the background, a claim that was given up; nil is none. It
// must not be called under the mutex.
func (c *claim) freeUnclaimed() {
	if c == nil {
		return
	}
	defer c.s.exit()
	if c.Limit > 0 { // others are given theirs meanwhile
		c.s.mu.Lock()
		c.s.detach(c)
		c.s.mu.Unlock()
		c.e.freeLater(context.Background(), c, func() {})
		return
	}
	c.e.freeLater(context.Background(), c, sync.OnceFunc(func() {
		c.s.mu.Lock()
		defer c.s.mu.Unlock()
		c.s.endRelease(c.s.keys[c.Key], c)
		c.gone()
	}))
}

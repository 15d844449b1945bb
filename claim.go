package locker

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/distlock/locker/driver"
	"github.com/distlock/locker/renewal"
)

// claim is this process's hold of a key in the store. Leases are its callers'
// views of it: re-entry adds one, the last Unlock gives the claim back.
//
// Whether it is alive the claim alone decides, by its state and its clock. Its
// times are on the Scheduler's clock; the Scheduler fires them and knows no more.
//
// Lock order: stripe.mu, claim.mu, the Scheduler's. None is held while the store,
// or anything of the user's, is called.
type claim struct {
	driver.Claim
	e *engine

	// end is when the claim is lost if nothing happens; Never once it is given
	// back, 0 once it is lost. Written under mu, read without.
	end atomic.Int64

	mu        sync.Mutex
	state     claimState
	lossKind  lossKind      // when lost
	named     bool          // the owner was named by ContextWithOwner
	inRenewal bool          // an automatic renewal is under way
	told      bool          // how the present hold ended
	grantKept bool          // the observer is told of the present hold's grant
	turn      chan struct{} // has an element while a SetHolds or Release is under way; nil without a HoldCounter
	outcome   error         // of the last renewal, if it failed; once lost or freed, of that
	leases    *Lease        // not unlocked, the newest first
	first     Lease
	entry     renewal.Entry[*claim]

	deadline time.Duration // the store keeps the claim until then at least
	lasts    time.Duration // for how long it was granted or renewed last
	limit    time.Duration // by WithMaxHold
	next     time.Duration // when the next automatic renewal is due
	renewals int32         // how many are left; noLimit
	releases int32         // releases that were sent in time and may have been applied

	*hold     // the present one; set under the stripe's mutex, too
	firstHold hold
	handOvers int32 // how many are left
	renewable int32 // how many renewals each hold may have; noLimit
}

// hold is one owner's time with the claim: a claim that is handed over inside the
// process has several, one after the other.
type hold struct {
	owner   string
	token   int64
	granted time.Duration
}

type claimState uint8

const (
	claimHeld      claimState = iota
	claimReleasing            // its last lease was unlocked
	claimFreed                // the store has given its last word on the release
	claimLost
)

type lossKind uint8

const (
	lossDenied  lossKind = iota // the store says so: nothing of ours is there
	lossExpired                 // the deadline passed; the key may linger
	lossLimit                   // a limit of the caller's own: the key is ours till the deadline
	lossClosed                  // the Locker was closed; likewise
)

// newLease adds a lease to a claim that is held; it needs mu.
func (c *claim) newLease() *Lease {
	l := &c.first
	if l.claim != nil {
		l = new(Lease)
	}
	l.claim, l.hold, l.next = c, c.hold, c.leases
	c.leases = l
	return l
}

// ending is when the claim ends if nothing happens, and by what; it needs mu.
func (c *claim) ending() (end time.Duration, kind lossKind, cause error) {
	end, kind, cause = c.deadline, lossExpired, ErrExpired
	if c.outcome != nil {
		cause = &lastFailure{ErrExpired, c.outcome}
	}
	if c.limit <= end {
		// A part of the lease remains for rolling back.
		end, kind, cause = min(c.limit, end-c.lasts/10), lossLimit, ErrMaxHold
	}
	if c.renewals == 0 && c.next < end {
		end, kind, cause = c.next, lossLimit, ErrMaxRenewals
	}
	return end, kind, cause
}

// schedule has the Scheduler fire what comes next; it needs mu.
func (c *claim) schedule() {
	end, _, _ := c.ending()
	next := c.next
	if c.inRenewal || c.renewals == 0 {
		next = renewal.Never
	}
	c.end.Store(int64(end))
	c.e.sched.Set(&c.entry, end, next)
}

// alive looks at the clock, and reports whether the claim is not lost: one whose
// end has come is lost before the caller is told anything else.
func (c *claim) alive() bool {
	if int64(c.e.sched.Now()) < c.end.Load() {
		return true
	}
	c.mu.Lock()
	after := c.expire()
	alive := c.state != claimLost
	c.mu.Unlock()
	after.run()
	return alive
}

// expire loses the claim if its end has come; it needs mu, and what it returns is
// run without.
func (c *claim) expire() aftermath {
	end, kind, cause := c.ending()
	if c.state != claimHeld || c.e.sched.Now() < end {
		return aftermath{}
	}
	return c.lose(kind, cause)
}

// lose ends the claim and its leases for cause, once, and tells them. It needs mu;
// what it returns is run without.
func (c *claim) lose(kind lossKind, cause error) aftermath {
	if c.state != claimHeld {
		return aftermath{}
	}
	c.state, c.lossKind = claimLost, kind
	c.outcome = &lossError{c.e.name, c.userKey(), cause}
	c.end.Store(0)
	c.e.sched.Remove(&c.entry)
	if !c.told {
		c.told = true
		c.e.notices.end(context.Background(), c.event(EventLost, c.outcome), c.grantKept)
	}
	a := aftermath{c: c}
	for l := c.leases; l != nil; l = l.next {
		l.ended = true
		if l.lost != nil {
			close(l.lost)
		}
		if l.ctxs != nil {
			a.ctxs = append(a.ctxs, l.ctxs)
			l.ctxs = nil
		}
	}
	return a
}

// aftermath is what follows a loss once all leases are told. The zero aftermath is
// nothing.
type aftermath struct {
	c    *claim
	ctxs []leaseContexts
}

func (a aftermath) run() {
	c := a.c
	if c == nil {
		return
	}
	for _, cs := range a.ctxs {
		for ctx := range cs {
			// Its parent may be the user's own type, and block.
			go ctx.end(c.outcome)
		}
	}
	c.e.stripeOf(c.Key).detach(c)
}

// denied notes that the store says that c does not hold the key.
func (c *claim) denied() {
	c.mu.Lock()
	after := c.lose(lossDenied, ErrDenied)
	c.mu.Unlock()
	after.run()
}

// drop takes l off the claim, and reports whether it was on it; it needs mu.
func (c *claim) drop(l *Lease) bool {
	for at := &c.leases; *at != nil; at = &(*at).next {
		if *at == l {
			*at, l.next = l.next, nil
			return true
		}
	}
	return false
}

// holds is how many leases the claim has; it needs mu.
func (c *claim) holds() (n int) {
	for l := c.leases; l != nil; l = l.next {
		n++
	}
	return n
}

// event is one about the present hold as a whole; it needs mu.
func (c *claim) event(kind EventKind, err error) Event {
	if !c.e.notices.wanted() {
		return Event{}
	}
	return Event{Kind: kind, Strategy: c.e.name, Key: c.userKey(), Owner: c.ownerName(), Token: c.token,
		Duration: c.e.sched.Now() - c.granted, Err: err}
}

// unavailable is err, which the store or the way to it has caused, as users are told it.
func (c *claim) unavailable(op string, err error) error {
	if err == nil {
		return nil
	}
	return &opError{strategy: c.e.name, op: op, key: c.userKey(), kind: ErrUnavailable, why: withoutContextErrors(err)}
}

func (c *claim) userKey() string { return c.e.userKey(c.Key) }

func (c *claim) ownerName() string {
	if c.named {
		return c.Owner
	}
	return ""
}

// leaseOf returns a lease of owner's, held or lost; nil if there is none. A lost one of the
// readers' is nil: the loss of one reader's lease is no other reader's.
func (c *claim) leaseOf(owner string) *Lease {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.owner != owner:
	case c.state == claimHeld, c.state == claimLost && owner != readers:
		return c.leases
	}
	return nil
}

// releasing reports whether the last lease of the claim was unlocked.
func (c *claim) releasing() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state == claimReleasing || c.state == claimFreed
}

func (c *claim) lastsUntil() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.deadline
}

func (c *claim) hasLostLeases() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state == claimLost && c.leases != nil
}

func (c *claim) lossOf() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state != claimLost {
		return nil
	}
	return c.outcome
}

package locker

import (
	"errors"
	"math"
	"time"

	"github.com/distlock/locker/driver"
)

// Sticky leases. The last Unlock of a claim may keep it: the claim is then held without a lease, like a
// claim that is offered to a waiter (handover.go). The next Lock of this Locker takes the claim, as a
// waiter takes an offer. In the store nothing changes. A kept claim has no command, no state and no time that a
// claim with a lease lacks. So this may happen:
//
//   - The process dies: the key is free at the claim's TTL, as if the process had died inside. The grant was for
//     stickyGrant only. The first renewal makes it a full TTL; after that the claim is not kept.
//   - A renewal fails: none is sent. One that was sent for a lease changes the claim, whoever has it by then.
//   - The process stands still: the claim ends at its deadline, before anything else looks at it.
//   - The store loses the key: leases are granted on a claim that is gone until stickyFor after its
//     grant, and no longer; their tokens are from its block, smaller than any token issued later.
//   - Another process is refused: the store, or that process, sends this Locker a signal, and the
//     claim is released. A lost signal is sent again with the next attempt, within a second;
//     by then the claim was released in any case. A signal that comes late, comes twice or is forged
//     names a claim that is not kept any more: the key is not sticky for a moment.
//   - The release is late: the key's queue waits for it for overdueAfter, as for any release; then the store
//     decides. It names the claim, whose id is not used again.
//   - ForceUnlock: the holder learns of it, and releases what it does not hold any more.
//   - Close: releases it, with the offers that no waiter has taken.
//
// Other processes come first. A claim is not kept if its call had to wait, or if the store refused other
// processes because of the claim. Then the key cools: for a time its claims are not kept.

const (
	// stickyFor is how long after the store's grant a claim may be kept: programs that cannot ask
	// for it, such as other libraries, wait as long.
	stickyFor = time.Second
	// stickyGrant is the TTL of a grant that may be kept, unless the call's is shorter.
	stickyGrant = 3 * time.Second
	// stickyTokens is how many leases there may be on one grant. The store reserves their tokens, where it has so
	// many: Redis issues a million per second, and 256 took less time than a release and the next grant.
	stickyTokens = 1024
	// keptMost is how many claims a stripe keeps: 4,096 a Locker.
	keptMost = 64

	// If a kept claim is asked for before it was useful, its key cools for coolMin, and twice as long each time, up to
	// coolMax. While processes are refused, the key cools for coolBusy, which is longer than they pause.
	coolMin  = 50 * time.Millisecond
	coolMax  = 3200 * time.Millisecond
	coolBusy = 150 * time.Millisecond
	useful   = 2 // leases

	// askAgain is how long TryLock waits beside a round trip for a lock that was asked for.
	askAgain = 2 * time.Millisecond
	// askTrip is the longest round trip after which TryLock waits.
	askTrip = 500 * time.Millisecond
)

// WithSticky keeps a lock in the process for up to idle (1 ms to 1 s) after its last Unlock, but not
// beyond 1 s after the store's grant. The next Lock or TryLock of the key in this Locker takes it
// without a command, with a greater token. So a pair of Lock and Unlock costs no round trip for keys
// that one process uses again and again.
//
// Other Lockers, with or without the option, ask for a lock that they are refused. The process gives
// the lock up at once if nobody uses it, and keeps nothing while others ask. The others wait for about
// two round trips more. Their TryLock waits for a round trip and 2 ms before it reports that the lock
// is held, unless the round trip took more than 500 ms.
//
// Programs that cannot ask wait until idle is over: other libraries, a person with SQL or redis-cli,
// older versions of this library. After a crash before the first renewal the key is free within 3 s,
// or within the TTL if that is shorter. The first renewal comes when half of that time is over, and
// makes the lease last for the TTL. (With [WithMargin] or [WithMaxHold] the lease lasts for the TTL
// from the start.) If the store loses the key, this process grants the lock to itself for up to 1 s
// more; the tokens of other processes are greater. As with [WithHandOver], nil from Unlock means
// that no loss was known, and [Lease.Owner] is known to this Locker only.
//
// A Locker does not keep locks of named owners, permits, the locks of an RWLock, locks whose renewal
// is off or limited, or locks that a renewal has already made last for the full TTL, if that is
// longer than 3 s. Such a renewal comes from [Lease.Renew], from a short [WithRenewInterval], or from
// [WithLossDetection], which renews a held lock when it begins to watch it. A lock that another
// goroutine waits for is handed over instead. A call takes a kept lock only if its TTL, margin and
// renewal are those of the lock. A Locker keeps 4,096 locks at most, and gives up first what was
// unused for longest. It listens for requests as for [Lease.ReleaseRequested] while it has locks that
// it may keep, and keeps nothing while it cannot listen. [New] fails with [ErrInvalid] and
// [errors.ErrUnsupported] if the driver's refusals do not name the holder (redlock, mysql, etcd).
// Default: nothing is kept.
func WithSticky(idle time.Duration) Option {
	return option(func(o *settings) {
		if idle < time.Millisecond || idle > stickyFor {
			o.refuse("WithSticky(%v): want 1ms to %v; leave it out to keep nothing", idle, stickyFor)
			return
		}
		o.sticky = idle
	})
}

// markSticky puts the mark by which others know whom to ask before the metadata of claims' ids.
func markSticky(metadata string) string {
	if metadata != "" {
		metadata = "&" + metadata[len(driver.MetadataMark):]
	}
	return driver.MetadataMark + driver.StickyMark + metadata
}

// setSticky readies a Locker that was made WithSticky.
func (e *Client) setSticky(s driver.Settings) error {
	if e.set.sticky == 0 {
		return nil
	}
	if e.signaller == nil || !s.NamesHolders {
		return &opError{strategy: e.name, op: "new", kind: ErrInvalid, why: errors.ErrUnsupported,
			hint: "WithSticky: with this strategy a refused caller does not learn who holds the lock, so nobody could ask for a lock that is kept unused; leave it out"}
	}
	for i := range e.stripes {
		e.stripes[i].cool = make([]coolness, 64)
	}
	return nil
}

// stickiness is the state of a claim that may be kept. The claim's mutex guards it.
type stickiness struct {
	off    bool          // others were refused because of the claim, or it was renewed for longer: it is not kept any more
	until  time.Duration // it is kept until then at most
	tokens int32         // reserved, and not used
	uses   int32         // leases after the first

	kept         bool
	idle         time.Duration // kept until then
	look         time.Duration // when the Scheduler fires; not after idle
	older, newer *claim        // kept ones of the stripe

	freed chan struct{} // closed when the release of a kept claim was answered
}

// stick returns the stickiness of a claim that may be kept; nil for any other.
func (c *claim) stick() *stickiness {
	if c.rare == nil {
		return nil
	}
	return c.rare.sticky
}

// maySticky reports whether the call may take a kept claim, and its own be kept.
func (c *call) maySticky() bool {
	return c.e.set.sticky > 0 && c.owner == "" && c.limit == 0 && !c.described() && c.renewals == noLimit && !c.turnedAway
}

// askToKeep asks the store for a grant that may be kept, if the call's may.
func (c *call) askToKeep(req *driver.Request) {
	if !c.maySticky() {
		return
	}
	req.TTL = c.grantFor(req.Short)
	if req.Fencing {
		req.Tokens = stickyTokens
	}
}

// grantFor returns the TTL that the call asks the store for.
func (c *call) grantFor(short bool) time.Duration {
	if short && c.maySticky() {
		return min(c.ttl, stickyGrant)
	}
	return c.ttl
}

// mayKeep readies a new claim, with that many reserved tokens, to be kept.
func (c *claim) mayKeep(tokens int) {
	n := int32(math.MaxInt32)
	if !c.e.set.noFencing {
		n = int32(tokens - 1)
	}
	if n <= 0 {
		return
	}
	now := c.firstTenure.granted
	c.rarely().sticky = &stickiness{until: now + stickyFor, look: now + c.e.set.sticky, tokens: n}
	if c.counted() && c.firstTenure.owner == c.Owner { // see setHandOvers
		c.firstTenure.owner = c.e.newID()
	}
}

// installed notes that the Locker is to listen for whoever wants the claim, if that may be kept, and reports whether it
// may: not if its key cools. It needs the mutex.
func (c *claim) installed() bool {
	st := c.stick()
	if st == nil {
		return false
	}
	if c.e.coolness(c.s, c.Key).until > c.firstTenure.granted {
		c.rare.sticky = nil
		return false
	}
	c.rare.listens = true
	c.e.listening.wanted.Add(1)
	return true
}

// sticks reports whether the claim is kept if its last lease ends now. It needs the mutex.
func (c *claim) sticks(now time.Duration) bool {
	st := c.stick()
	return st != nil && !st.off && st.tokens > 0 && now < st.until && !c.inRenewal && c.outcome() == nil && !c.rare.doubted &&
		c.e.listening.live.Load()
}

// tokensLeft returns for how many more tenures a claim that may be kept has tokens; for others handOvers is the limit.
func (c *claim) tokensLeft() int32 {
	if st := c.stick(); st != nil {
		return st.tokens
	}
	return math.MaxInt32
}

// keep notes that the claim, which is about to have no lease, is kept. It needs the mutex.
func (c *claim) keep(now time.Duration) {
	st, s := c.stick(), c.s
	st.kept, st.idle = true, min(now+c.e.set.sticky, st.until)
	st.older = s.newest
	if s.newest != nil {
		s.newest.rare.sticky.newer = c
	} else {
		s.oldest = c
	}
	s.newest = c
	if s.kept++; s.kept > keptMost {
		go s.keys[s.oldest.Key].withdraw().freeUnclaimed()
	}
}

// unkeep notes that the claim is not kept any more, and reports whether it was. It needs the mutex.
func (c *claim) unkeep() bool {
	st, s := c.stick(), c.s
	if st == nil || !st.kept {
		return false
	}
	if st.older != nil {
		st.older.rare.sticky.newer = st.newer
	} else {
		s.oldest = st.newer
	}
	if st.newer != nil {
		st.newer.rare.sticky.older = st.older
	} else {
		s.newest = st.older
	}
	st.kept, st.older, st.newer = false, nil, nil
	s.kept--
	return true
}

// taken notes that the claim gets a lease with the next token, and reports whether it was kept. It needs the mutex.
func (c *claim) taken() (kept bool) {
	if st := c.stick(); st != nil {
		st.tokens--
		st.uses++
	}
	return c.unkeep()
}

// kept returns the key's claim if it is kept, or nil. It needs the mutex.
func (ks *keyState) kept() *claim {
	if ks == nil {
		return nil
	}
	c := ks.present()
	if c == nil || c.stick() == nil || !c.rare.sticky.kept {
		return nil
	}
	return c
}

// takeKept gives the call the claim that is kept for it, if there is one. One that does not suit is given up, and
// so is the key's stickiness for a while. A TryLock waits for a claim that is being given up, as nobody has held it for long.
func (c *call) takeKept(try bool) *Lease {
	l, unsuited, freed := c.seekKept()
	unsuited.freeUnclaimed()
	if freed != nil && try {
		timer := time.NewTimer(overdueAfter)
		defer timer.Stop()
		select {
		case <-freed:
		case <-timer.C:
		case <-c.e.closed:
		case <-c.ctx.Done():
		}
	}
	return l
}

func (c *call) seekKept() (l *Lease, unsuited *claim, freed <-chan struct{}) {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	ks := c.s.keys[c.key]
	if ks == nil || c.s.closed {
		return nil, nil, nil
	}
	cl, now := ks.kept(), c.e.sched.Now()
	switch {
	case cl != nil && now >= cl.stick().idle: // the process stood still, and its timer has not fired yet
		unsuited = ks.withdraw()
	case cl != nil && ks.empty() && cl.suits(c):
		return c.takeOver(ks, cl, now), nil, nil
	case cl != nil && ks.empty():
		unsuited = c.s.wanted(cl)
	}
	if cl = ks.current; cl != nil && cl.state == claimReleasing && cl.stick() != nil {
		freed = cl.rare.sticky.freed
	}
	return nil, unsuited, freed
}

// lapse gives up a kept claim whose time is over, for freeUnclaimed; else it says when to look next. The Scheduler
// looks once in an idle time at most, not for each Unlock. It needs the mutex.
func (c *claim) lapse() *claim {
	st := c.stick()
	if st == nil {
		return nil
	}
	switch now := c.e.sched.Now(); {
	case st.kept && now >= st.idle:
		return c.s.keys[c.Key].withdraw()
	case st.kept:
		st.look = st.idle
	case st.off || now >= st.until:
		st.look = never
	case now >= st.look:
		st.look = min(now+c.e.set.sticky, st.until)
	}
	return nil
}

// giveUpKept gives up a kept claim whose renewal is due, or about which the store does not answer, for freeUnclaimed.
func (c *claim) giveUpKept() *claim {
	if c.e.set.sticky == 0 {
		return nil
	}
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	ks := c.s.keys[c.Key]
	if ks.kept() != c {
		return nil
	}
	return ks.withdraw()
}

// gone lets those know who wait for the end of a kept claim. It needs the mutex.
func (c *claim) gone() {
	if st := c.stick(); st != nil && st.freed != nil {
		close(st.freed)
		st.freed = nil
	}
}

package locker

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/distlock/locker/driver"
	"github.com/distlock/locker/internal/wake"
	"github.com/distlock/locker/renewal"
)

// claim is this process's grant of a key, as it stands in the store. Leases are its callers'
// views of it: re-entry adds one, the last Unlock gives the claim back.
//
// The claim alone decides whether it is alive, by its state and its clock. A claim that is
// held is the current one of its key, and no other is. Its times are on the Scheduler's
// clock; the Scheduler fires them and knows no more.
type claim struct {
	driver.Claim
	e *Client
	s *stripe // its mutex guards what follows

	// end is when the claim is lost if nothing happens; never once it is given back, 0 once
	// it is lost. It is read without the mutex.
	end atomic.Int64

	state     claimState
	lossKind  lossKind // when lost
	named     bool     // the owner was named by ContextWithOwner
	inRenewal bool     // an automatic renewal is due or under way
	sending   bool     // a SetHolds or Release is under way, of a claim whose holds the store counts
	reported  bool     // the end of the present tenure was reported
	grantKept bool     // the observer gets the event of the present tenure's grant
	atRisk    bool     // the present tenure is or was at risk
	leases    *Lease   // not unlocked, the newest first
	first     Lease
	entry     renewal.Entry[*claim]

	deadline time.Duration // the store keeps the claim until then at least
	lasts    time.Duration // the TTL of the last grant or renewal
	rare     *rarities     // nil: there are none
	next     time.Duration // when the next automatic renewal is due
	renewals int32         // how many are left; noLimit
	releases int32         // releases that were sent in time and may have been applied

	*tenure     // the present one
	firstTenure tenure
	handOvers   int32 // how many are left
	renewable   int32 // how many renewals each tenure may have; noLimit
}

// tenure is one owner's time with the claim: a claim that is handed over inside the
// process has several, one after the other.
type tenure struct {
	owner   string
	token   int64
	granted time.Duration
	shared  bool // a caller has named the made-up owner
}

type claimState uint8

const (
	claimHeld      claimState = iota
	claimReleasing            // its last lease was unlocked
	claimFreed                // the store has given its last word on the release
	claimLost
)

// rarities has the fields that few claims need.
type rarities struct {
	limit      time.Duration // by WithMaxHold; never: none
	margin     time.Duration // by WithMargin
	sticky     *stickiness   // nil: it is not kept without a lease
	failed     error         // see outcome
	countsFree wake.Signal   // a SetHolds or Release has ended; nil: nobody waits for that
	signals
}

// rarely returns the claim's rarities, which it makes if need be. It needs the mutex.
func (c *claim) rarely() *rarities {
	if c.rare == nil {
		c.rare = &rarities{limit: never}
	}
	return c.rare
}

// margin returns how much earlier the claim ends here than in the store; see [WithMargin]. It does
// not change.
func (c *claim) margin() time.Duration {
	if c.rare == nil {
		return 0
	}
	return c.rare.margin
}

// keptUntil returns the time until which the store keeps the claim at least: the deadline plus the margin. It needs the mutex.
func (c *claim) keptUntil() time.Duration { return c.deadline + c.margin() }

// add makes l a lease of the present tenure of a claim that is held. It needs the mutex.
func (c *claim) add(l *Lease) *Lease {
	l.claim, l.tenure, l.next = c, c.tenure, c.leases
	c.leases = l
	return l
}

// drop takes l off the claim. It reports whether l was on it, and needs the mutex.
func (c *claim) drop(l *Lease) bool {
	for at := &c.leases; *at != nil; at = &(*at).next {
		if *at == l {
			*at, l.next = l.next, nil
			return true
		}
	}
	return false
}

// holds returns how many leases the claim has. It needs the mutex.
func (c *claim) holds() (n int) {
	for l := c.leases; l != nil; l = l.next {
		n++
	}
	return n
}

// outcome returns the error of the last renewal, if that failed; once the claim is lost or freed, of
// the loss or the release.
func (c *claim) outcome() error {
	if c.rare == nil {
		return nil
	}
	return c.rare.failed
}

// setOutcome needs the mutex.
func (c *claim) setOutcome(err error) {
	if err != nil || c.rare != nil {
		c.rarely().failed = err
	}
}

// ending returns when the claim ends if nothing happens, and by what. It needs the mutex.
func (c *claim) ending() (end time.Duration, kind lossKind, cause error) {
	end, kind, cause = c.deadline, lossExpired, ErrExpired
	if err := c.outcome(); err != nil {
		cause = &lastFailure{ErrExpired, err}
	}
	if c.rare != nil && c.rare.limit <= end {
		// A part of the lease remains for rolling back.
		end, kind, cause = min(c.rare.limit, end-c.lasts/10), lossLimit, ErrMaxHold
	}
	if c.renewals == 0 && c.next < end {
		end, kind, cause = c.next, lossLimit, ErrMaxRenewals
	}
	return end, kind, cause
}

// schedule sets what the Scheduler fires next: the end, or the risk before it. While all is well
// there is a renewal before the risk, and the risk is looked at then. It needs the mutex.
func (c *claim) schedule() {
	end, _, _ := c.ending()
	next := c.next
	if c.inRenewal || c.renewals == 0 {
		next = renewal.Never
	}
	c.end.Store(int64(end))
	if !c.atRisk && (c.inRenewal || c.outcome() != nil || c.next >= c.deadline-c.lasts/3) {
		end = min(end, c.riskAt())
	}
	if c.rare != nil && c.rare.sticky != nil {
		end = min(end, c.rare.sticky.look)
	}
	c.e.sched.Set(&c.entry, end, next)
}

// inTime reports whether the end of the claim has not come. It does not need the mutex.
func (c *claim) inTime() bool { return int64(c.e.sched.Now()) < c.end.Load() }

// alive reports whether the claim is not lost. A claim whose end has come is lost before the
// caller learns anything else. It locks the mutex, if only then.
func (c *claim) alive() bool {
	if c.inTime() {
		return true
	}
	defer c.lock().Unlock()
	return c.state != claimLost
}

// lock locks the mutex, and loses the claim if its end has come. It returns the mutex.
func (c *claim) lock() *sync.Mutex {
	c.s.mu.Lock()
	if !c.inTime() {
		c.expire().run()
	}
	return &c.s.mu
}

// beginRenewal returns when the lease ends, and reports whether a renewal begins.
func (c *claim) beginRenewal(now time.Duration) (deadline time.Duration, ok bool) {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	if c.state != claimHeld || c.inRenewal || now >= time.Duration(c.end.Load()) {
		return 0, false
	}
	c.inRenewal = true
	c.schedule() // it may fail
	return c.deadline, true
}

// awaitsRenewal returns how long the lease still lasts, and reports whether the renewal that has
// begun is still wanted.
func (c *claim) awaitsRenewal(now time.Duration) (left time.Duration, ok bool) {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	return c.deadline - now, c.state == claimHeld && now < time.Duration(c.end.Load())
}

// renewed draws the conclusions from the answer to a renewal sent at sent. A claim that
// is not held any more stays so, whatever the answer.
func (c *claim) renewed(ctx context.Context, sent time.Duration, err error, automatic bool) {
	denied, failed := isLost(err), withoutContextErrors(err)
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	if c.state != claimHeld {
		return
	}
	c.inRenewal = c.inRenewal && !automatic
	kind, now, again := EventRenewed, c.e.sched.Now(), c.outcome() != nil
	c.expire().run() // a late answer revives nothing
	switch {
	case c.state == claimLost:
	case denied:
		c.lose(lossDenied, ErrDenied).run()
	case failed != nil:
		kind = EventRenewFailed
		c.setOutcome(failed)
		if automatic {
			c.next = max(c.next, now+retryAfter(c.entry.Interval, c.deadline-now))
		}
		c.schedule()
	default:
		if st := c.stick(); st != nil && c.lasts < c.TTL {
			// If the process died, the key would stay for longer than an unused lock may. It is kept no more, and given up
			// if it is kept now: the Scheduler looks at once.
			st.off, st.idle, st.look = true, now, now
		}
		c.deadline, c.lasts = max(c.deadline, sent+validityOf(c.TTL)-c.margin()), c.TTL
		c.setOutcome(nil)
		if automatic {
			c.next = max(c.next, sent+c.entry.Interval)
			if c.renewals > 0 {
				c.renewals--
			}
		}
		c.schedule()
	}
	if c.state != claimLost && !c.reported && c.e.notices.wanted {
		ev := c.event(kind, c.unavailable("renew", failed))
		ev.Duration, ev.again = now-sent, again && kind == EventRenewFailed
		c.e.notices.event(ctx, ev)
	}
}

// release ends the hold of a claim: from here on it is neither renewed nor re-entered. A
// renewal under way is harmless: the store checks the claim's id. It needs the mutex.
func (c *claim) release(state claimState) {
	c.state = state
	c.end.Store(int64(never))
	if c.rare != nil {
		c.hush()
		c.unkeep()
	}
	if c.e.detection != nil {
		c.undetect()
	}
	c.e.sched.Remove(&c.entry)
}

// released notes, and reports, what came of a release in the end: what releaseEnd returned.
// It needs the mutex.
func (c *claim) released(ctx context.Context, kind EventKind, err error) {
	if c.state != claimReleasing {
		return // lost, which was reported, or released before
	}
	if kind != EventReleaseFailed {
		c.state = claimFreed
		if err != nil || c.outcome() != nil {
			c.setOutcome(err)
		}
	}
	c.reportEnd(ctx, kind, err)
}

// releaseEnd returns the event by which a release ends, and its error. It asks err, so it must
// not be called under the mutex.
func (c *claim) releaseEnd(err error) (EventKind, error) {
	switch {
	case err == nil:
		return EventReleased, nil
	case isLost(err):
		return EventLost, err
	}
	return EventReleaseFailed, c.unavailable("unlock", withoutContextErrors(err))
}

// reportEnd reports how the present tenure has ended, once. It needs the mutex.
func (c *claim) reportEnd(ctx context.Context, kind EventKind, err error) {
	if !c.reported && c.e.notices.wanted {
		c.e.notices.end(ctx, c.event(kind, err), c.grantKept)
	}
	c.reported = true
}

// event returns an event about the present tenure as a whole. It needs the mutex.
func (c *claim) event(kind EventKind, err error) Event {
	return Event{Kind: kind, Strategy: c.e.name, Key: c.userKey(), Owner: c.ownerName(), Token: c.token,
		Duration: c.e.sched.Now() - c.granted, Err: err}
}

// unavailable returns the error that users see for err, which the store or the way to it has
// caused; nil for nil.
func (c *claim) unavailable(op string, err error) error {
	if err == nil {
		return nil
	}
	return &opError{strategy: c.e.name, op: op, key: c.userKey(), kind: ErrUnavailable, why: err}
}

func (c *claim) userKey() string { return c.e.userKey(c.Key) }

func (c *claim) ownerName() string {
	if c.named || c.Owner != c.ID {
		return c.Owner
	}
	return ""
}

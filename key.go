package locker

import (
	"slices"
	"time"

	"github.com/distlock/locker/driver"
	"github.com/distlock/locker/internal/wake"
)

const (
	// overdueAfter is for how long a command under way holds up the queue of its key:
	// then the next waiter asks the store, which decides anyway.
	overdueAfter = 300 * time.Millisecond
	// watchLinger is how long a watch outlives a queue that ended with a grant.
	watchLinger = time.Second
)

// keyState describes a key that a Locker holds, waits for or has just used. It leaves the
// table with the last of these. Its methods, and those of its queue, need the mutex.
type keyState struct {
	key     string
	current *claim              // the lock that is held, or being released
	permits map[*claim]struct{} // the claims of permits, held or being released; such a key has no current claim
	*queue                      // nil for a key that is held and no more
}

// queue is the part of a keyState that exists while calls wait for the key, a command about it
// is under way, its watch lingers, or lost leases on it are not unlocked.
type queue struct {
	lost []*claim // of owners whom callers have named, until their leases are unlocked

	head, tail *call
	outage     outage // counted for the key, so that its whole queue fails together
	holder     string // the owner whom the last refusal named
	answered   bool   // the store has answered the present queue
	opening    bool   // a waiter opens the watch

	attempts   int32         // under way
	releases   int32         // under way
	begun      time.Duration // when the latest of both was sent
	full       bool          // the store has refused permits, or has too few left for the first waiter
	room       int32         // how many attempts for permits may be under way at once; 0: unknown
	unanswered time.Duration // since when the store has answered no attempt

	watch  driver.Watch
	reopen time.Duration // a watch is opened not before
	timer  *time.Timer   // wakes the next waiter when a command is overdue, or ends the watch
}

// outage is since when a place in the store has failed without an answer between.
type outage struct {
	since time.Duration // 0: there is none
	err   error
}

func (o *outage) failed(now time.Duration, err error) {
	if o.since == 0 {
		o.since = max(now, 1)
	}
	o.err = err
}

// over reports whether the patience of a call with this TTL is over.
func (o *outage) over(now, ttl time.Duration) bool {
	return o.since != 0 && now-o.since >= max(ttl, minOutage)
}

// waiter is a call's place in the queue. Only the call itself changes entered, queued and
// asking, and reads them without the mutex.
type waiter struct {
	ks         *keyState // once it has joined
	prev, next *call
	owner      string // "" unless named
	named      bool
	entered    bool          // Close waits for it
	queued     bool          // it is in the queue
	asking     bool          // an attempt is under way
	asked      time.Duration // since when
	given      *claim        // permits that another caller of this Locker has left
	bid        string        // the claim of the attempt for which the driver keeps permits free
	reported   bool          // so was the wait, by EventWaiting
	turnedAway bool          // the store has refused it
	sticks     bool          // what it was granted may be kept
	blocked    bool          // it is next, and waits for what this process does
	woken      bool          // its next move asks the store without waiting for pollAt
	pollAt     time.Duration // when it asks the store next, unless it is woken or signalled
	wake       wake.Signal   // nil until the call parks
	failed     error         // the queue failed
}

func (w *waiter) signal() {
	w.woken = true
	w.wake.Send()
}

func (q *queue) push(c *call) {
	c.queued = true
	c.prev = q.tail
	if q.tail == nil {
		q.head = c
	} else {
		q.tail.next = c
	}
	q.tail = c
}

// remove takes c out of the queue, if it is there.
func (q *queue) remove(c *call) {
	if !c.queued {
		return
	}
	c.queued = false
	if c.prev == nil {
		q.head = c.next
	} else {
		c.prev.next = c.next
	}
	if c.next == nil {
		q.tail = c.prev
	} else {
		c.next.prev = c.prev
	}
	c.prev, c.next = nil, nil
}

// empty reports whether no call is queued, waiting or asking.
func (q *queue) empty() bool { return q == nil || q.head == nil }

// next returns the waiter whose turn it is: the first that has no attempt under way and
// has not failed.
func (q *queue) next() *call {
	if q == nil {
		return nil
	}
	w := q.head
	for w != nil && (w.asking || w.failed != nil) {
		w = w.next
	}
	return w
}

func (q *queue) wakeNext() {
	if w := q.next(); w != nil {
		w.signal()
	}
}

// wakeOwner wakes the waiters of an owner.
func (q *queue) wakeOwner(owner string) {
	for w := q.head; w != nil; w = w.next {
		if w.named && w.owner == owner {
			w.signal()
		}
	}
}

// fail fails the waiters whose patience with the store is over. They leave by themselves.
func (q *queue) fail(now time.Duration) {
	all := true
	for w := q.head; w != nil; w = w.next {
		if !w.asking && w.failed == nil && q.outage.over(now, w.ttl) {
			w.failed = q.outage.err
			w.signal()
		}
		all = all && w.failed != nil
	}
	if all {
		q.outage = outage{} // calls that join from now on have their full patience
	}
}

// endWatch returns the watch of a key for which nobody waits, to be closed without the mutex.
func (q *queue) endWatch() (w driver.Watch) {
	if q != nil && q.head == nil {
		w, q.watch = q.watch, nil
	}
	return w
}

// present returns the claim that is held or being released: one whose end has come is
// lost first.
func (ks *keyState) present() *claim {
	if ks.current != nil {
		ks.current.expire().run()
	}
	return ks.current
}

// ofOwner returns a lease of the owner's that is held, or else a claim of the owner's that was
// lost and still has leases. For readers there is no such claim: the loss of one reader's
// lease is no other reader's. Once a caller has found a lease by its made-up owner, the loss of that lease is
// the owner's, as if the owner had been named from the start.
func (ks *keyState) ofOwner(owner string) (held *Lease, lost *claim) {
	if cur := ks.present(); cur != nil && cur.state == claimHeld && cur.owner == owner {
		if held = cur.leases; held != nil {
			cur.shared = true
		}
	}
	if held == nil {
		held = ks.permitsOf(owner)
	}
	if ks.queue == nil {
		return held, nil
	}
	if i := slices.IndexFunc(ks.lost, func(c *claim) bool { return c.owner == owner }); i >= 0 {
		return nil, ks.lost[i]
	}
	return held, nil
}

// detach ends c's hold of the key in this process. The queue goes on.
func (s *stripe) detach(c *claim) {
	ks := s.keys[c.Key]
	if ks == nil || !ks.drop(c) {
		return
	}
	if c.state == claimLost && (c.named || c.shared) && !c.reads() && c.leases != nil {
		s.at(c.Key)
		ks.lost = append(ks.lost, c)
		ks.wakeOwner(c.owner)
	}
	ks.wakeNext()
	s.prune(ks)
}

// forgetLost lets the owner of a lost claim lock anew: all its leases are unlocked.
func (s *stripe) forgetLost(c *claim) {
	if ks := s.keys[c.Key]; ks != nil && ks.queue != nil {
		ks.lost = slices.DeleteFunc(ks.lost, func(o *claim) bool { return o == c })
		s.prune(ks)
	}
}

// blocked reports whether the next waiter has to wait for what this process itself
// holds, or for a command of its own that is not overdue yet.
func (ks *keyState) blocked(c *call, now time.Duration) bool {
	switch {
	case ks.current != nil && ks.current.state == claimHeld:
		return true
	case c.limit > 0 && ks.hasRoom(c):
		return false
	}
	return ks.busy() && now < ks.overdueAt()
}

// late reports whether a command is under way that is overdue.
func (ks *keyState) late(now time.Duration) bool { return ks.busy() && now >= ks.overdueAt() }

// busy reports whether a command about the key is under way.
func (ks *keyState) busy() bool { return ks.queue != nil && ks.attempts+ks.releases > 0 }

// overdueAt returns when the command under way is overdue: a release no later than the
// deadline of its claim, when the store has dropped it anyway.
func (ks *keyState) overdueAt() time.Duration {
	at := ks.begun + overdueAfter
	if ks.current != nil {
		at = min(at, ks.current.deadline)
	}
	return at
}

// guardQueue sets the timer that wakes the next waiter when the command under way is overdue.
func (s *stripe) guardQueue(ks *keyState, now time.Duration) {
	if !ks.busy() {
		return
	}
	if at := ks.overdueAt(); at > now {
		s.setTimer(ks, at-now)
	}
}

// ask notes that c's attempt is sent.
func (s *stripe) ask(c *call, now time.Duration) {
	ks := c.ks
	c.asking, c.asked = true, now
	if ks.attempts == 0 {
		ks.unanswered = now
	}
	ks.attempts++
	ks.begun = now
	if w := ks.next(); w != nil {
		if w.limit > 0 && !ks.blocked(w, now) {
			w.signal()
		}
		s.guardQueue(ks, now)
	}
}

// asked notes that c's attempt has ended: it was answered, or given up.
func (s *stripe) asked(c *call) {
	c.asking = false
	c.ks.attempts--
	if w := c.ks.next(); w != nil && w != c && (w.limit == 0 || w.blocked) {
		w.signal() // it may have waited for this attempt's end
	}
}

// heard notes that the store has answered c's attempt.
func (s *stripe) heard(c *call, now time.Duration) {
	s.asked(c)
	c.ks.outage, c.ks.answered = outage{}, true
	if c.ks.attempts > 0 {
		c.ks.unanswered = now
	}
}

// beginRelease notes that a release of c is sent. It returns nil if c is not the key's
// claim any more: then the queue does not wait for that release.
func (s *stripe) beginRelease(c *claim) *keyState {
	ks := s.keys[c.Key]
	if ks != nil && c.Limit > 0 {
		return ks
	}
	if ks == nil || ks.current != c {
		return nil
	}
	s.at(c.Key)
	now := c.e.sched.Now()
	ks.releases++
	ks.begun = now
	if ks.next() != nil {
		if s.guardQueue(ks, now); !ks.blocked(ks.next(), now) {
			ks.wakeNext() // the TTL has freed the key
		}
	}
	return ks
}

// endRelease notes that the release was answered or given up: the queue of the key goes on.
func (s *stripe) endRelease(ks *keyState, c *claim) {
	if ks == nil {
		return
	}
	if c.Limit == 0 {
		ks.releases--
	}
	if ks.current == c {
		ks.current = nil
	} else {
		ks.drop(c)
	}
	ks.wakeNext()
	s.prune(ks)
}

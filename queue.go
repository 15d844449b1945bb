package locker

import (
	"math/rand/v2"
	"time"

	"github.com/distlock/locker/driver"
)

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

// place in the queue: fields of call, guarded by the stripe's mutex.
type place struct {
	prev, next *call
	queued     bool
	asking     bool          // an attempt is under way
	woken      bool          // look at once
	look       time.Duration // else not before
	wake       chan struct{} // holds one; made before the call parks
	failed     error         // the queue failed
}

func (p *place) signal() {
	p.woken = true
	if p.wake != nil {
		select {
		case p.wake <- struct{}{}:
		default:
		}
	}
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

// remove takes c out of the queue and wakes the next.
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
	q.wakeNext()
}

// empty reports whether no call waits, nor has one that waits for another answer.
func (q *queue) empty() bool { return q == nil || q.head == nil }

// next is whose turn it is: the first that has no attempt under way and has not failed.
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

// blocked reports whether the next waiter has to wait for what this process itself
// holds, or for a command of its own that is not late yet.
func (ks *keyState) blocked(now time.Duration) bool {
	if ks.current != nil && !ks.current.releasing() {
		return true
	}
	return ks.queue != nil && ks.attempts+ks.releases > 0 && now < ks.lateAt()
}

// late reports whether a command is under way that is late.
func (ks *keyState) late(now time.Duration) bool {
	return ks.queue != nil && ks.attempts+ks.releases > 0 && now >= ks.lateAt()
}

// lateAt is when the command under way is late: a release no later than the
// deadline of its claim, when the store has dropped it anyway.
func (ks *keyState) lateAt() time.Duration {
	at := ks.begun + lateAfter
	if ks.current != nil {
		at = min(at, ks.current.lastsUntil())
	}
	return at
}

// ask notes that c's attempt is sent, and asked that it was answered or left behind.
func (s *stripe) ask(ks *keyState, c *call, now time.Duration) {
	c.asking = true
	if ks.attempts == 0 {
		ks.unanswered = now
	}
	ks.attempts++
	ks.begun = now
	s.guardTurn(ks, now)
}

func (s *stripe) asked(ks *keyState, c *call) {
	c.asking = false
	ks.attempts--
	if w := ks.next(); w != nil && w != c {
		w.signal() // it may have waited for this attempt's end
	}
}

// guardTurn has the next waiter woken when the command under way is late.
func (s *stripe) guardTurn(ks *keyState, now time.Duration) {
	if at := ks.lateAt(); ks.attempts+ks.releases > 0 && at > now && ks.next() != nil {
		s.setTimer(ks, at-now)
	}
}

// failQueue fails the waiters whose patience with the store is over. They leave by themselves.
func (q *queue) failQueue(now time.Duration) {
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

func (q *queue) lostOf(owner string) *claim {
	if q == nil {
		return nil
	}
	for _, c := range q.lost {
		if c.Owner == owner {
			return c
		}
	}
	return nil
}

// pauseFor is how long to wait after a refusal for what no signal tells.
func pauseFor(a driver.Answer, watched bool, poll *backoff) time.Duration {
	var d time.Duration
	if watched && !a.NoWakeUp {
		d = lookAgain - rand.N(lookAgain/5)
	} else {
		d = poll.next(pollMin, pollMax)
	}
	if a.Remaining > 0 && a.Remaining < d {
		// The holder may be dead: look when its lease is over, not all
		// waiters in the same instant.
		d = min(d, a.Remaining+time.Millisecond+rand.N(4*time.Millisecond))
	}
	return d
}

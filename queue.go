package locker

import (
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/distlock/locker/driver"
)

const (
	// lateAfter is for how long a command under way holds up the queue of its key:
	// then the next waiter asks the store, which decides anyway.
	lateAfter = 300 * time.Millisecond
	// watchLinger is how long a watch outlives a queue that ended with a grant:
	// the key will be contended again, and the next wait needs no subscription.
	watchLinger = time.Second
)

// shard is a part of the table of keys, with the lock for it and with what runs on
// behalf of these keys, so that Close can end it and wait for it.
type shard struct {
	mu      sync.Mutex
	keys    map[string]*keyState
	calls   map[*call]struct{} // with a command under way; Close cancels it
	running int                // calls, Unlocks and background work
	closed  bool
	idle    chan struct{} // closed when running is 0; made by Close
}

// keyState is what a Locker knows of a key it holds, waits for or has just used.
// It is guarded by its shard's mutex, and leaves the table with the last of these.
type keyState struct {
	key     string
	current *claim   // held, or being released
	lost    []*claim // of named owners, until their leases are unlocked

	head, tail *call
	outage     outage // counted for the key, so that its whole queue fails together
	answered   bool   // the store has answered the present queue
	holder     string // the owner whom the last refusal named

	// begun is when the latest attempt or release that is under way was sent;
	// underWay is how many are.
	begun    time.Duration
	underWay int
	oldest   time.Duration // when the first of those was sent that have no answer yet, at the earliest

	watch   driver.Watch
	reopen  time.Duration // a watch is opened not before
	opening bool          // a waiter is at it
	timer   *time.Timer   // wakes the next waiter when a command is late, or ends the watch
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

// at returns the state of key, making it if need be.
func (s *shard) at(key string) *keyState {
	ks := s.keys[key]
	if ks == nil {
		ks = &keyState{key: key}
		s.keys[key] = ks
	}
	return ks
}

// enter counts something that runs; it reports false once the Locker is closed.
// What follows from what was let in enters always.
func (s *shard) enter(always bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed && !always {
		return false
	}
	s.running++
	return true
}

func (s *shard) exit() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running--; s.running == 0 && s.idle != nil {
		close(s.idle)
		s.idle = nil
	}
}

// place in the queue: fields of call, guarded by the shard's mutex.
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

func (ks *keyState) push(c *call) {
	c.queued = true
	c.prev = ks.tail
	if ks.tail == nil {
		ks.head = c
	} else {
		ks.tail.next = c
	}
	ks.tail = c
}

// remove takes c out of the queue and wakes the next.
func (ks *keyState) remove(c *call) {
	if !c.queued {
		return
	}
	c.queued = false
	if c.prev == nil {
		ks.head = c.next
	} else {
		c.prev.next = c.next
	}
	if c.next == nil {
		ks.tail = c.prev
	} else {
		c.next.prev = c.prev
	}
	c.prev, c.next = nil, nil
	ks.wakeNext()
}

// next is whose turn it is: the first that has no attempt under way.
func (ks *keyState) next() *call {
	w := ks.head
	for w != nil && w.asking {
		w = w.next
	}
	return w
}

func (ks *keyState) wakeNext() {
	if w := ks.next(); w != nil {
		w.signal()
	}
}

// wakeOwner wakes the waiters of an owner.
func (ks *keyState) wakeOwner(owner string) {
	for w := ks.head; w != nil; w = w.next {
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
	return ks.underWay > 0 && now < ks.lateAt()
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

// begin notes that an attempt or a release is sent.
func (s *shard) begin(ks *keyState, now time.Duration) {
	if ks.underWay == 0 {
		ks.oldest = now
	}
	ks.underWay++
	ks.begun = now
	s.guardTurn(ks, now)
}

// end notes that it was answered, or left behind. c is the call whose attempt it
// was; nil for a release.
func (s *shard) end(ks *keyState, c *call) {
	ks.underWay--
	if c != nil {
		c.asking = false
	}
	if w := ks.next(); w != nil && w != c {
		w.signal() // it may have waited for this command's end
	}
}

// guardTurn has the next waiter woken when the command under way is late.
func (s *shard) guardTurn(ks *keyState, now time.Duration) {
	if ks.underWay > 0 && ks.next() != nil {
		s.after(ks, max(ks.lateAt()-now, 0))
	}
}

// after sets the key's timer.
func (s *shard) after(ks *keyState, d time.Duration) {
	if ks.timer == nil {
		ks.timer = time.AfterFunc(d, func() { s.tick(ks) })
	} else {
		ks.timer.Reset(d)
	}
}

func (s *shard) tick(ks *keyState) {
	s.mu.Lock()
	var watch driver.Watch
	if ks.head != nil {
		ks.wakeNext()
	} else {
		watch = s.settle(ks, false)
	}
	s.mu.Unlock()
	closeWatch(watch)
}

// failQueue fails the waiters whose patience with the store is over.
func (ks *keyState) failQueue(now time.Duration) {
	for w := ks.head; w != nil; {
		next := w.next
		if !w.asking && ks.outage.over(now, w.ttl) {
			w.failed = ks.outage.err
			ks.remove(w)
			w.signal()
		}
		w = next
	}
}

func (ks *keyState) lostOf(owner string) *claim {
	for _, c := range ks.lost {
		if c.Owner == owner {
			return c
		}
	}
	return nil
}

// settle drops what is not needed any more once the queue is empty; keep lets the
// watch linger. It returns a watch to close outside the lock.
func (s *shard) settle(ks *keyState, keep bool) (unwatch driver.Watch) {
	if ks.head != nil {
		return nil
	}
	ks.outage, ks.answered, ks.holder = outage{}, false, ""
	if ks.watch != nil {
		if keep && !s.closed {
			s.after(ks, watchLinger)
		} else {
			unwatch, ks.watch = ks.watch, nil
		}
	}
	if ks.current == nil && len(ks.lost) == 0 && ks.watch == nil && ks.underWay == 0 && s.keys[ks.key] == ks {
		delete(s.keys, ks.key)
		if ks.timer != nil {
			ks.timer.Stop()
		}
	}
	return unwatch
}

func closeWatch(w driver.Watch) {
	if w != nil {
		w.Close()
	}
}

// Why a claim that was granted is not installed.
var errMerge = errors.New("another goroutine of the same owner was granted the key")

// install makes c the key's claim, and ends the wait of call w. It refuses with
// errLate when the Locker knows a later grant (c's answer was late, c is not the
// holder any more), with errMerge when c's owner has a claim here already, and with
// ErrClosed.
func (s *shard) install(c *claim, w *call) error {
	s.mu.Lock()
	ks := s.at(c.Key)
	old := ks.current
	switch {
	case s.closed:
		s.mu.Unlock()
		return ErrClosed
	case old == nil:
	case old.Token > c.Token:
		s.mu.Unlock()
		return errLate
	case c.named && c.e.counter != nil && old.Owner == c.Owner && old.Token == c.Token && !old.releasing():
		s.mu.Unlock()
		return errMerge
	}
	c.mu.Lock()
	c.schedule()
	c.mu.Unlock()
	ks.current = c
	// Told here, so that its loss is told after it.
	c.e.notices.event(w.ctx, w.event(EventAcquired, c.Token, nil))
	ks.outage, ks.holder = outage{}, ""
	ks.remove(w)
	if c.named {
		ks.wakeOwner(c.Owner)
	}
	unwatch := s.settle(ks, true)
	s.mu.Unlock()
	closeWatch(unwatch)
	if old != nil {
		old.denied() // the store granted the key anew, so it has lost the old claim
	}
	return nil
}

// detach ends c's hold of its key in this process; the queue goes on.
func (s *shard) detach(c *claim) {
	s.mu.Lock()
	ks := s.at(c.Key)
	if ks.current == c {
		ks.current = nil
		ks.wakeNext()
	}
	if c.named && c.hasLostLeases() {
		ks.lost = append(ks.lost, c)
		ks.wakeOwner(c.Owner)
	}
	unwatch := s.settle(ks, true)
	s.mu.Unlock()
	closeWatch(unwatch)
}

// forgetLost lets the owner of a lost claim lock anew, all its leases being
// unlocked.
func (s *shard) forgetLost(c *claim) {
	s.mu.Lock()
	var unwatch driver.Watch
	if ks := s.keys[c.Key]; ks != nil {
		ks.lost = slices.DeleteFunc(ks.lost, func(o *claim) bool { return o == c })
		unwatch = s.settle(ks, true)
	}
	s.mu.Unlock()
	closeWatch(unwatch)
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

package locker

import (
	"errors"
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

// stripe is a part of the table of keys, with the lock for it and with what runs on
// behalf of these keys, so that Close can end it and wait for it.
type stripe struct {
	mu      sync.Mutex
	keys    map[string]*keyState
	spare   *queue // of a key that needs none any more
	running int    // calls, Unlocks and background work
	closed  bool
	idle    chan struct{} // closed when running is 0; made by Close
}

// keyState is what a Locker knows of a key it holds, waits for or has just used.
// It is guarded by its stripe's mutex, and leaves the table with the last of these.
type keyState struct {
	key     string
	current *claim // held, or being released
	*queue         // nil for a key that is held and no more
}

// queue is what a key has while calls wait for it, a command about it is under way, its watch
// lingers or leases on it that were lost are not unlocked.
type queue struct {
	lost []*claim // of named owners, until their leases are unlocked

	head, tail *call
	outage     outage // counted for the key, so that its whole queue fails together
	holder     string // the owner whom the last refusal named
	answered   bool   // the store has answered the present queue
	opening    bool   // a waiter opens the watch

	attempts   int32         // under way
	releases   int32         // under way
	begun      time.Duration // when the latest of both was sent
	unanswered time.Duration // since when the store has answered no attempt

	watch  driver.Watch
	reopen time.Duration // a watch is opened not before
	timer  *time.Timer   // wakes the next waiter when a command is late, or ends the watch
}

// at returns the state of key with a queue, making them if need be: prune drops what is
// not needed.
func (s *stripe) at(key string) *keyState {
	ks := s.keys[key]
	if ks == nil {
		ks = &keyState{key: key}
		s.keys[key] = ks
	}
	if ks.queue == nil {
		if ks.queue, s.spare = s.spare, nil; ks.queue == nil {
			ks.queue = new(queue)
		}
	}
	return ks
}

// enter counts something that runs; it reports false once the Locker is closed.
// Work that follows from a call that was let in always enters.
func (s *stripe) enter(always bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed && !always {
		return false
	}
	s.running++
	return true
}

func (s *stripe) exit() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running--; s.running == 0 && s.idle != nil {
		close(s.idle)
		s.idle = nil
	}
}

// done is closed when nothing runs any more.
func (s *stripe) done() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running == 0 {
		return closedChan
	}
	if s.idle == nil {
		s.idle = make(chan struct{})
	}
	return s.idle
}

// close refuses further calls and ends the leases held.
func (s *stripe) close() (after []aftermath, untaken []*claim) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for _, ks := range s.keys {
		if c := ks.reclaim(); c != nil {
			untaken = append(untaken, c)
		} else if c = ks.current; c != nil {
			c.mu.Lock()
			after = append(after, c.lose(lossClosed, ErrClosed))
			c.mu.Unlock()
		}
	}
	return after, untaken
}

func (s *stripe) closeWatches() {
	s.mu.Lock()
	var ws []driver.Watch
	for _, ks := range s.keys {
		if ks.queue == nil {
			continue
		}
		if ks.timer != nil {
			ks.timer.Stop()
		}
		if ks.watch != nil {
			ws = append(ws, ks.watch)
			ks.watch = nil
		}
	}
	s.mu.Unlock()
	for _, w := range ws {
		w.Close()
	}
}

// setTimer sets the key's timer.
func (s *stripe) setTimer(ks *keyState, d time.Duration) {
	if ks.timer == nil {
		ks.timer = time.AfterFunc(d, func() { s.tick(ks) })
	} else {
		ks.timer.Reset(d)
	}
}

// tick wakes the next waiter if a command is late, and only then: a timer that was set
// for a command outlives its answer.
func (s *stripe) tick(ks *keyState) {
	s.mu.Lock()
	if w := ks.next(); w != nil && ks.late(w.e.sched.Now()) {
		w.signal()
	}
	watch := s.prune(ks, false)
	s.mu.Unlock()
	closeWatch(watch)
}

// prune drops what is not needed any more once the queue is empty; keep lets the
// watch linger. It returns a watch to close outside the lock.
func (s *stripe) prune(ks *keyState, keep bool) (unwatch driver.Watch) {
	if ks.queue == nil || ks.head != nil {
		return nil
	}
	ks.outage, ks.answered, ks.holder = outage{}, false, ""
	if ks.watch != nil {
		if keep && !s.closed {
			s.setTimer(ks, watchLinger)
		} else {
			unwatch, ks.watch = ks.watch, nil
		}
	}
	if len(ks.lost) > 0 || ks.watch != nil || ks.attempts+ks.releases > 0 {
		return unwatch
	}
	if ks.timer != nil {
		ks.timer.Stop()
	}
	*ks.queue = queue{}
	s.spare, ks.queue = ks.queue, nil
	if ks.current == nil {
		delete(s.keys, ks.key)
	}
	return unwatch
}

func closeWatch(w driver.Watch) {
	if w != nil {
		w.Close()
	}
}

// errMerge says why a claim that was granted is not installed.
var errMerge = errors.New("another goroutine of the same owner was granted the key")

// install makes c the key's claim, and ends the wait of call w. It refuses with
// errLate when the Locker knows a later grant (c's answer was late, c is not the
// holder any more), with errMerge when c's owner has a claim here already, and with
// ErrClosed.
func (s *stripe) install(c *claim, w *call) error {
	s.mu.Lock()
	var old *claim
	if ks := s.keys[c.Key]; ks != nil {
		old = ks.current
	}
	switch {
	case s.closed:
		s.mu.Unlock()
		return ErrClosed
	case old == nil:
	// Without fencing nothing tells which grant came later, as both can be valid only after
	// a break. The one that is answered later is kept: it ends by its own deadline or
	// denial, and the key stays taken until the TTL of the other, so no third is inside.
	case old.token > c.token:
		s.mu.Unlock()
		return errLate
	case c.named && c.e.counter != nil && old.Owner == c.Owner && old.token == c.token && !old.releasing():
		s.mu.Unlock()
		return errMerge
	}
	c.mu.Lock()
	c.grantKept = c.e.notices.event(w.ctx, w.event(EventAcquired, c.token, nil)) // before its loss can be
	c.schedule()
	c.mu.Unlock()
	ks := s.at(c.Key)
	ks.current = c
	ks.outage, ks.holder = outage{}, ""
	ks.remove(w)
	if c.named {
		ks.wakeOwner(c.Owner)
	}
	unwatch := s.prune(ks, true)
	s.mu.Unlock()
	closeWatch(unwatch)
	if old != nil {
		old.denied() // the store granted the key anew, so it has lost the old claim
	}
	return nil
}

// detach ends c's hold of its key in this process; the queue goes on.
func (s *stripe) detach(c *claim) {
	s.mu.Lock()
	ks := s.at(c.Key)
	if ks.current == c {
		ks.current = nil
		ks.wakeNext()
	}
	if c.named && c.Owner != readers && c.hasLostLeases() {
		ks.lost = append(ks.lost, c)
		ks.wakeOwner(c.Owner)
	}
	unwatch := s.prune(ks, true)
	s.mu.Unlock()
	closeWatch(unwatch)
}

// forgetLost lets the owner of a lost claim lock anew, all its leases being
// unlocked.
func (s *stripe) forgetLost(c *claim) {
	s.mu.Lock()
	var unwatch driver.Watch
	if ks := s.keys[c.Key]; ks != nil && ks.queue != nil {
		ks.lost = slices.DeleteFunc(ks.lost, func(o *claim) bool { return o == c })
		unwatch = s.prune(ks, true)
	}
	s.mu.Unlock()
	closeWatch(unwatch)
}

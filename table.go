package locker

import (
	"sync"
	"time"

	"github.com/distlock/locker/driver"
	"github.com/distlock/locker/internal/idle"
)

// stripe is a part of the table of keys: their states, a mutex for them, and a count of
// what runs on their behalf.
//
// The rules of the mutex, which are all that the engine has for its locks:
//
//  1. The mutex of a stripe guards its keys and all that belongs to them: their queues,
//     claims and leases. A claim never changes its stripe. "Needs the mutex" means this one.
//  2. Under it, nothing foreign runs: no code of the user's, no method of a driver, a watch
//     or a context, and neither errors.Is nor Error of an error that the engine did not make.
//     What is to be asked of these is asked before. Events are only queued, and ask nothing.
//  3. Under it, a goroutine may be started. That is how the contexts of a lost lease end.
//  4. Two stripes' mutexes are never held together. Who loses claims of several stripes
//     ends no context before the last of the claims is lost.
//  5. The mutexes that may be locked under it are the Scheduler's, the mailboxes' of the
//     notices and that of the detection of losses. They lock no other.
//
// Two things are read without it: claim.end, which is atomic, and the outcome of a claim
// that was seen lost.
type stripe struct {
	mu     sync.Mutex
	keys   map[string]*keyState
	spare  *queue     // of a key that needs none any more
	calls  idle.Count // calls and Unlocks under way
	closed bool

	// For a Locker WithSticky: the kept claims, oldest first, and the keys that cool.
	oldest, newest *claim
	kept           int
	cool           []coolness
}

// enter counts a command that a lease needs, after Close, too; exit ends it.
func (s *stripe) enter() { s.run(1) }
func (s *stripe) exit()  { s.run(-1) }

func (s *stripe) run(more int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls.Add(more)
}

// done returns a channel that is closed when nothing runs any more.
func (s *stripe) done() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls.Done()
}

// close refuses further calls and ends the leases held. It returns the contexts to be
// ended, and the claims to be released since no waiter has accepted them.
func (s *stripe) close() (after aftermath, unclaimed []*claim) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for _, ks := range s.keys {
		if c := ks.withdraw(); c != nil {
			unclaimed = append(unclaimed, c)
		} else if c = ks.current; c != nil {
			after = append(after, c.lose(lossClosed, ErrClosed)...)
		}
		for c := range ks.permits {
			if c.offered() {
				unclaimed = append(unclaimed, c.giveUp())
			} else {
				after = append(after, c.lose(lossClosed, ErrClosed)...)
			}
		}
	}
	return after, unclaimed
}

// closeWatches closes the watches that linger when the Locker is closed.
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

// closeWatch closes w, if there is one.
func closeWatch(w driver.Watch) {
	if w != nil {
		w.Close()
	}
}

// at returns the state of key, with a queue, and makes them if need be. prune drops them.
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

// prune drops what the key does not need any more. A watch lingers when the queue has
// ended: the key will be contended again, and the next wait then needs no subscription.
func (s *stripe) prune(ks *keyState) {
	if q := ks.queue; q != nil {
		if q.head != nil {
			return
		}
		q.outage, q.answered, q.holder, q.full, q.room = outage{}, false, "", false, 0
		if q.watch != nil && !s.closed {
			s.setTimer(ks, watchLinger)
		}
		if len(q.lost) > 0 || q.watch != nil || q.attempts+q.releases > 0 {
			return
		}
		if q.timer != nil {
			q.timer.Stop()
		}
		*q = queue{}
		s.spare, ks.queue = q, nil
	}
	if ks.current == nil && len(ks.permits) == 0 && s.keys[ks.key] == ks {
		delete(s.keys, ks.key)
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

// tick wakes the next waiter if a command is late, and only then: a timer that was set for
// a command outlives its answer. Where nobody waits, the watch has lingered for long enough.
func (s *stripe) tick(ks *keyState) {
	s.mu.Lock()
	var now time.Duration
	if w := ks.next(); w != nil {
		if now = w.e.sched.Now(); ks.late(now) {
			w.signal()
		}
	}
	unclaimed := ks.passOnLate()
	watch := ks.endWatch()
	s.prune(ks)
	s.mu.Unlock()
	closeWatch(watch)
	for _, c := range unclaimed {
		c.freeUnclaimed()
	}
}

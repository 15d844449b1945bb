package locker

import (
	"sync"
	"time"
)

// keyState is what a Locker knows of a key it holds, waits for or has just used.
// It is guarded by its shard's mutex, and leaves the table with the last of
// these.
type keyState struct {
	key     string
	current *claim   // held, or being released
	orphans []*claim // lost claims of named owners, until their leases are unlocked

	head, tail *waiter

	// Attempts have failed since outage; zero after an answer. Counted for the
	// key, so that its whole queue fails together.
	outage    time.Time
	outageErr error
	sent      time.Time // of the head's attempt in flight, else zero
	known     bool      // the store has answered the present queue

	// The head of the queue waits on watch. It outlives the queue for a second
	// after a success: who contended once will do so again.
	watch    Watch
	watchTry time.Time // not before: the last Watch failed
	linger   *time.Timer
}

// waiter is one Lock in the queue of its key.
type waiter struct {
	prev, next *waiter
	owner      string // "" unless named
	limit      time.Duration
	wake       chan struct{} // holds one
	err        error         // set when it failed with the queue
	asked      time.Time     // last attempt out of turn
	queued     bool
}

func (w *waiter) signal() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
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

func (ks *keyState) push(w *waiter) {
	w.queued = true
	w.prev = ks.tail
	if ks.tail == nil {
		ks.head = w
	} else {
		ks.tail.next = w
	}
	ks.tail = w
}

// remove takes w out of the queue and wakes the new head.
func (ks *keyState) remove(w *waiter) {
	if !w.queued {
		return
	}
	w.queued = false
	first := ks.head == w
	if w.prev == nil {
		ks.head = w.next
	} else {
		w.prev.next = w.next
	}
	if w.next == nil {
		ks.tail = w.prev
	} else {
		w.next.prev = w.prev
	}
	w.prev, w.next = nil, nil
	if first && ks.head != nil {
		ks.head.signal()
	}
}

// wakeOwner wakes the waiters that can re-enter the claim just granted.
func (ks *keyState) wakeOwner(owner string) {
	for w := ks.head; w != nil; w = w.next {
		if w.owner == owner {
			w.signal()
		}
	}
}

// failed notes a failed attempt and fails the waiters whose patience with the
// store is over.
func (ks *keyState) failed(now time.Time, err error) {
	if ks.outage.IsZero() {
		ks.outage = now
	}
	ks.outageErr = err
	for w := ks.head; w != nil; {
		next := w.next
		if now.Sub(ks.outage) >= w.limit {
			w.err = err
			ks.remove(w)
			w.signal()
		}
		w = next
	}
}

func (ks *keyState) answered() { ks.outage, ks.outageErr = time.Time{}, nil }

func (ks *keyState) orphanOf(owner string) *claim {
	for _, c := range ks.orphans {
		if c.Owner == owner {
			return c
		}
	}
	return nil
}

// settle drops what nobody needs any more; keep lets the watch linger. It
// returns a watch to close outside the lock.
func (s *shard) settle(ks *keyState, keep bool) (unwatch Watch) {
	if ks.head != nil {
		return nil
	}
	ks.answered()
	ks.sent, ks.known = time.Time{}, false
	if ks.watch != nil && ks.linger == nil {
		if keep {
			ks.linger = time.AfterFunc(watchLinger, func() { s.endLinger(ks) })
		} else {
			unwatch, ks.watch = ks.watch, nil
		}
	}
	if ks.current == nil && len(ks.orphans) == 0 && ks.watch == nil && s.keys[ks.key] == ks {
		delete(s.keys, ks.key)
	}
	return unwatch
}

func (s *shard) endLinger(ks *keyState) {
	s.mu.Lock()
	ks.linger = nil
	w := s.settle(ks, false)
	s.mu.Unlock()
	if w != nil {
		w.Close()
	}
}

func (s *shard) closeWatches() {
	s.mu.Lock()
	var ws []Watch
	for _, ks := range s.keys {
		if ks.linger != nil {
			ks.linger.Stop()
			ks.linger = nil
		}
		if ks.watch != nil {
			ws = append(ws, ks.watch)
			ks.watch = nil
		}
	}
	s.mu.Unlock()
	var closing sync.WaitGroup
	for _, w := range ws {
		closing.Go(w.Close)
	}
	closing.Wait()
}

// install makes c the key's claim, taking w off the queue. It refuses with errLate
// when the Locker knows a later grant (c's answer was late, c is not the holder
// any more), and with errMerge when c's owner has a claim here already.
func (e *engine) install(c *claim, w *waiter) error {
	sh := e.shardOf(c.Key)
	sh.mu.Lock()
	ks := sh.at(c.Key)
	old := ks.current
	switch {
	case old == nil:
	case old.Token > c.Token:
		sh.mu.Unlock()
		return errLate
	case c.named && e.counter != nil && old.Owner == c.Owner && old.Token == c.Token:
		sh.mu.Unlock()
		return errMerge
	}
	c.mu.Lock()
	if c.state == claimHeld { // it may be lost already
		ks.current = c
	}
	c.mu.Unlock()
	ks.answered()
	if w != nil {
		ks.remove(w)
	}
	if c.named {
		ks.wakeOwner(c.Owner)
	}
	unwatch := sh.settle(ks, true)
	sh.mu.Unlock()
	if unwatch != nil {
		unwatch.Close()
	}
	if old != nil && e.sched.Fail(&old.watched, errDenied) {
		// The store granted the key anew, so it has lost the old claim.
		old.lose(errDenied)
	}
	return nil
}

// detach ends c's hold of its key in this process; the queue goes on.
func (e *engine) detach(c *claim) {
	sh := e.shardOf(c.Key)
	sh.mu.Lock()
	ks := sh.at(c.Key)
	if ks.current == c {
		ks.current = nil
		if ks.head != nil {
			ks.head.signal()
		}
	}
	if c.named {
		c.mu.Lock()
		orphan := c.state == claimLost && len(c.leases) > 0
		c.mu.Unlock()
		if orphan {
			ks.orphans = append(ks.orphans, c)
			ks.wakeOwner(c.Owner)
		}
	}
	unwatch := sh.settle(ks, ks.linger != nil)
	sh.mu.Unlock()
	if unwatch != nil {
		unwatch.Close()
	}
}

// forgetOrphan lets the owner of a lost claim lock anew once all its leases are
// unlocked.
func (e *engine) forgetOrphan(c *claim) {
	if !c.named {
		return
	}
	sh := e.shardOf(c.Key)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	ks := sh.keys[c.Key]
	if ks == nil {
		return
	}
	c.mu.Lock()
	gone := len(c.leases) == 0
	c.mu.Unlock()
	if !gone {
		return
	}
	for i, o := range ks.orphans {
		if o == c {
			ks.orphans = append(ks.orphans[:i:i], ks.orphans[i+1:]...)
			if w := sh.settle(ks, true); w != nil {
				go w.Close()
			}
			return
		}
	}
}

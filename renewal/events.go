package renewal

import (
	"math/bits"
	"time"
)

const (
	// A tick handles this many events and leaves the rest to one that follows
	// at once, so that callers wait for the mutex but briefly.
	burst = 1024

	// So many groups are remembered though empty, to spare those who lock and
	// unlock one key the making of one each time.
	idleGroups = 64
)

// groupKey says which claims may be renewed together: those of one shard whose
// intervals are within a factor of two.
type groupKey struct {
	shard string
	class int // bits.Len64 of the interval
}

// group has the claims of one groupKey.
type group[T any] struct {
	groupKey
	queue queue[*Entry[T]] // by next; those in a batch are out of it
	kept  int              // entries, in a batch or not
	spot  int32            // in Scheduler.due
}

func (e *Entry[T]) place(k kind) *int32 { return &e.places[k] }
func (g *group[T]) place(kind) *int32   { return &g.spot }

// The methods below need s.mu.

// join finds or makes the group for one more entry.
func (s *Scheduler[T]) join(shard string, interval int64) *group[T] {
	key := groupKey{shard, bits.Len64(uint64(interval))}
	g := s.groups[key]
	if g == nil {
		g = &group[T]{groupKey: key, queue: queue[*Entry[T]]{kind: inGroup}}
		s.groups[key] = g
	}
	g.kept++
	return g
}

// enqueue has e renewed at e.next.
func (s *Scheduler[T]) enqueue(e *Entry[T]) {
	e.group.queue.set(e, e.next)
	s.regroup(e.group)
}

// regroup follows a change of g.queue.
func (s *Scheduler[T]) regroup(g *group[T]) {
	if g.queue.len() == 0 {
		s.due.remove(g)
	} else if at := g.queue.min(); !s.due.has(g) || s.due.key(g) != at {
		s.due.set(g, at)
	}
}

// drop takes e, which is kept, out of everything.
func (s *Scheduler[T]) drop(e *Entry[T], to state) {
	e.state = to
	if to == lost {
		e.end.Store(lostEnd)
	} else {
		e.end.Store(never)
	}
	s.ends.remove(e)
	if g := e.group; g != nil {
		e.group = nil
		g.queue.remove(e)
		s.regroup(g)
		if g.kept--; g.kept == 0 && len(s.groups) > idleGroups {
			delete(s.groups, g.groupKey)
		}
	}
	if s.ends.len() == 0 && s.armed != never {
		s.timer.Stop()
		s.armed = never
	}
}

// lose drops e and tells so. It unlocks s.mu.
func (s *Scheduler[T]) lose(e *Entry[T], cause error) {
	item := e.item
	e.why = cause
	s.drop(e, lost)
	s.mu.Unlock()
	s.cfg.Lost(item, cause)
}

// used reports whether e had all its renewals; then it is in no group.queue,
// and the time of the next one is an end.
func (e *Entry[T]) used() bool { return e.max != 0 && e.renewals >= e.max }

// cause is what e's end is called, once it has come.
func (e *Entry[T]) cause() error {
	switch end := e.end.Load(); {
	case e.limit == end:
		return ErrMaxHold
	case e.used() && e.next == end:
		return ErrMaxRenewals
	}
	return ErrExpired
}

// extend reckons e's times anew: a renewal sent at sent went through.
func (s *Scheduler[T]) extend(e *Entry[T], sent int64) {
	deadline := max(e.deadline.Load(), plus(sent, e.validity))
	e.deadline.Store(deadline)
	end := min(deadline, e.limit)
	if e.interval > 0 {
		// max, because another renewal may have been sent later but
		// answered sooner.
		e.next = max(e.next, plus(sent, e.interval))
		if e.used() {
			end = min(end, e.next)
		}
	}
	e.end.Store(end)
	if end < s.ends.key(e) {
		s.ends.set(e, end) // only what moves away may lag
	}
}

// firstEnd is when the first entry ends, never if there is none.
func (s *Scheduler[T]) firstEnd() int64 {
	for s.ends.len() > 0 {
		e := s.ends.top()
		end := e.end.Load()
		if s.ends.min() == end {
			return end
		}
		s.ends.set(e, end)
	}
	return never
}

// arm has the timer fire no later than the first event.
func (s *Scheduler[T]) arm() {
	at := min(s.firstEnd(), s.due.min())
	if at >= s.armed {
		return // firing too early costs one tick, being set again for each Stop costs more
	}
	s.armed = at
	d := time.Duration(max(0, at-s.now()))
	if s.timer == nil {
		s.timer = time.AfterFunc(d, s.tick)
	} else {
		s.timer.Reset(d)
	}
}

// tick is what the timer calls: it does what is due.
func (s *Scheduler[T]) tick() {
	type loss struct {
		item  T
		cause error
	}
	var losses []loss
	var batches []*batch[T]

	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return
	}
	s.armed = never
	now := s.now()
	for len(losses) < burst && s.firstEnd() <= now {
		e := s.ends.top()
		e.why = e.cause()
		losses = append(losses, loss{e.item, e.why})
		s.drop(e, lost)
	}
	for n := 0; n < burst && s.due.min() <= now; {
		b := s.collect(s.due.top(), now)
		batches = append(batches, b)
		n += len(b.entries)
	}
	s.running += 1 + len(batches)
	s.arm()
	s.mu.Unlock()

	for _, b := range batches {
		go s.run(b)
	}
	for _, l := range losses {
		s.cfg.Lost(l.item, l.cause)
	}
	s.leave()
}

// leave is called when a tick or batch has ended.
func (s *Scheduler[T]) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running--; s.running == 0 && s.closed {
		close(s.done)
	}
}

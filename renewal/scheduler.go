package renewal

import (
	"context"
	"math"
	"sync"
	"time"
)

const (
	never = math.MaxInt64 // no time at all, and the end of what was stopped

	lostEnd = math.MinInt64 // the end of what was lost

	defaultMaxBatch = 256
)

// Scheduler keeps claims: it renews them, and it tells when one is lost. Make
// one with [New]. Its methods may be called from many goroutines.
type Scheduler[T any] struct {
	cfg    Config[T]
	base   time.Time // the clock's zero
	ctx    context.Context
	cancel context.CancelFunc
	done   chan struct{} // closed once nothing runs any more

	mu sync.Mutex
	// ends has every kept entry. Its keys may be earlier than the real ends,
	// which mostly move away: they are put right when they come to the top.
	ends   queue[*Entry[T]]
	groups map[groupKey]*group[T]
	due    queue[*group[T]] // those with entries to renew, by the first of them

	timer   *time.Timer
	armed   int64 // what timer is set to; at or before the first event
	running int   // ticks and batches
	closed  bool
}

// New makes a Scheduler. It panics if a required function is missing.
func New[T any](cfg Config[T]) *Scheduler[T] {
	if cfg.Renew == nil || cfg.Final == nil || cfg.Lost == nil {
		panic("renewal: Config needs Renew, Final and Lost")
	}
	if cfg.MaxBatch <= 0 {
		cfg.MaxBatch = defaultMaxBatch
	}
	s := &Scheduler[T]{
		cfg:    cfg,
		base:   time.Now().Add(-1), // now is positive: 0 stands for never added
		done:   make(chan struct{}),
		ends:   queue[*Entry[T]]{kind: inEnds},
		groups: make(map[groupKey]*group[T]),
		armed:  never,
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// Add begins to keep e, which stands for item. It reports false, and does
// nothing, after Close. The first renewal is due t.Interval from now or, if that
// is sooner, from when the grant was sent (t.Deadline less t.Validity). Add
// panics if e was added before.
func (s *Scheduler[T]) Add(e *Entry[T], item T, t Terms) bool {
	deadline, limit := s.nanos(t.Deadline), int64(never)
	if !t.Limit.IsZero() {
		limit = s.nanos(t.Limit)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.state != fresh {
		panic("renewal: Entry added twice")
	}
	if s.closed {
		return false
	}
	e.state = kept
	e.item = item
	e.validity = int64(max(t.Validity, 0))
	e.limit = limit
	e.deadline.Store(deadline)
	if t.Interval > 0 {
		now := s.now()
		e.interval = int64(t.Interval)
		e.max = int32(min(max(t.MaxRenewals, 0), math.MaxInt32))
		e.next = max(now, plus(min(now, deadline-e.validity), e.interval))
		e.group = s.join(t.Shard, e.interval)
		s.enqueue(e)
	}
	end := min(deadline, limit)
	e.end.Store(end)
	s.ends.set(e, end)
	s.arm()
	return true
}

// Stop ends the keeping of e and reports whether it was kept until now: false
// if e was never added, was lost, or was stopped before. Once Stop has returned
// true, Lost is never called for e and no further renewal is begun; one that is
// under way may still reach the store, and its answer is ignored.
func (s *Scheduler[T]) Stop(e *Entry[T]) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.state != kept {
		return false
	}
	s.drop(e, stopped)
	return true
}

// Deadline is the time until which e lasts by its latest renewal, whatever its
// limits; the zero time if e was never added. Once e has ended it stands still.
func (s *Scheduler[T]) Deadline(e *Entry[T]) time.Time {
	d := e.deadline.Load()
	if d == 0 {
		return time.Time{}
	}
	// Not base.Add: the wall clock may have been set since.
	now := time.Now()
	return now.Add(time.Duration(d) - now.Sub(s.base))
}

// Expired reports whether e is lost, for whatever reason, and looks at the clock
// to know: if e is still kept though its end has come, it is lost now, and Lost
// is called before Expired returns true. (If e was lost in another goroutine,
// Lost may still be running there.) It is false before Add and after Stop and
// Close. It takes no lock unless there is something to do.
func (s *Scheduler[T]) Expired(e *Entry[T]) bool {
	switch end := e.end.Load(); {
	case end == lostEnd:
		return true
	case s.now() < end:
		return false
	}
	s.mu.Lock()
	if e.state == kept && s.now() >= e.end.Load() {
		s.lose(e, e.cause()) // unlocks
		return true
	}
	defer s.mu.Unlock()
	return e.state == lost
}

// Cause is why e was lost, as Lost is or was told; nil unless it was.
func (s *Scheduler[T]) Cause(e *Entry[T]) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return e.why
}

// Extend says that a renewal by the caller, sent at sent, went through: e lasts
// until sent plus its Validity, if that is later than before, and the next
// renewal is due an Interval after sent. It reports false if e is not kept any
// more; nothing revives it. If its end has come by now, it is lost as by
// [Scheduler.Expired]. It does not count towards MaxRenewals.
func (s *Scheduler[T]) Extend(e *Entry[T], sent time.Time) bool {
	at := s.nanos(sent)
	s.mu.Lock()
	if e.state != kept {
		s.mu.Unlock()
		return false
	}
	now := s.now()
	if now >= e.end.Load() {
		s.lose(e, e.cause()) // unlocks
		return false
	}
	defer s.mu.Unlock()
	s.extend(e, min(at, now))
	if e.group != nil && e.group.queue.has(e) {
		s.enqueue(e)
	}
	s.arm()
	return true
}

// Fail says that the caller learned that e is gone, as if a renewal had brought
// a final error: unless e has ended already, Lost is called with cause. It
// reports whether e was still kept.
func (s *Scheduler[T]) Fail(e *Entry[T], cause error) bool {
	s.mu.Lock()
	if e.state != kept {
		s.mu.Unlock()
		return false
	}
	s.lose(e, cause) // unlocks
	return true
}

// Close ends all and returns the items that were still kept, in no order. They
// count as stopped: Lost is not called for them. The contexts of the batches
// under way are cancelled; see [Scheduler.Wait] for their end. After the first
// call Close does nothing.
func (s *Scheduler[T]) Close() []T {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	items := make([]T, 0, s.ends.len())
	for s.ends.len() > 0 {
		// The last one is the cheapest to remove.
		e := s.ends.slots[s.ends.len()-1].e
		items = append(items, e.item)
		s.drop(e, stopped)
	}
	s.groups = nil
	s.cancel()
	if s.running == 0 {
		close(s.done)
	}
	return items
}

// Wait returns once the Scheduler is closed and nothing of it runs any more.
func (s *Scheduler[T]) Wait() { <-s.done }

// Done returns a channel that is closed when [Scheduler.Wait] would return.
func (s *Scheduler[T]) Done() <-chan struct{} { return s.done }

func (s *Scheduler[T]) now() int64 { return int64(time.Since(s.base)) }

// nanos is t on the Scheduler's clock. What lies before its zero is past anyway,
// and must not look like never added.
func (s *Scheduler[T]) nanos(t time.Time) int64 { return max(1, int64(t.Sub(s.base))) }

// plus is t+d, or never if that is out of range. d is not negative.
func plus(t, d int64) int64 {
	if t > never-d {
		return never
	}
	return t + d
}

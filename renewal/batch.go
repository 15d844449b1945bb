package renewal

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"time"
)

const (
	// An entry is renewed up to a part 1/early of its interval before it is
	// due if another one of its group is due: so claims that were taken at
	// different times come to share their round trips.
	early = 8

	// A batch is given up after a third of what its claims have left, to
	// have the time for two more tries.
	minTimeout = 20 * time.Millisecond
	maxTimeout = 3 * time.Second

	minRetry = 10 * time.Millisecond
)

// batch is one call of Renew.
type batch[T any] struct {
	shard    string
	entries  []*Entry[T]
	answered []bool // guarded by Scheduler.mu
	sent     int64
}

// collect makes a batch of the first entries of g, at least one of which is due.
// It needs s.mu.
func (s *Scheduler[T]) collect(g *group[T], now int64) *batch[T] {
	b := &batch[T]{shard: g.shard}
	for g.queue.len() > 0 && len(b.entries) < s.cfg.MaxBatch {
		e := g.queue.top()
		if e.next-now > e.interval/early {
			break
		}
		g.queue.remove(e)
		b.entries = append(b.entries, e)
	}
	s.regroup(g)
	return b
}

// run renews a batch, in a goroutine of its own.
func (s *Scheduler[T]) run(b *batch[T]) {
	defer s.leave()
	items, timeout := s.send(b)
	if len(items) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(s.ctx, timeout)
	defer cancel()
	defer func() {
		// Deferred, to be done after a panic or a Goexit too.
		var err error
		if v := recover(); v != nil {
			err = &PanicError{v, debug.Stack()}
		} else if err = ctx.Err(); err != nil {
			err = fmt.Errorf("%w: %w", ErrUnanswered, err)
		} else {
			err = ErrUnanswered
		}
		for i := range b.entries {
			s.settle(b, i, err, false)
		}
	}()
	s.cfg.Renew(ctx, b.shard, items, func(i int, err error) {
		s.settle(b, i, err, err != nil && s.cfg.Final(err))
	})
}

// send leaves in b what is still to be renewed, notes the time, and returns the
// items and how long Renew may take.
func (s *Scheduler[T]) send(b *batch[T]) (items []T, timeout time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b.sent = s.now()
	left := int64(never)
	n := 0
	for _, e := range b.entries {
		// What ended since collect is left out; so is what is about to be
		// lost by the tick that is due.
		if e.state != kept || b.sent >= e.end.Load() {
			continue
		}
		b.entries[n] = e
		n++
		items = append(items, e.item)
		left = min(left, e.deadline.Load()-b.sent)
	}
	clear(b.entries[n:])
	b.entries = b.entries[:n]
	b.answered = make([]bool, n)
	return items, min(max(time.Duration(left/3), minTimeout), maxTimeout)
}

// settle takes the answer for one entry of b.
func (s *Scheduler[T]) settle(b *batch[T], i int, err error, final bool) {
	e := b.entries[i] // panics for a bad index, before anything is locked
	s.mu.Lock()
	if b.answered[i] || e.state != kept {
		s.mu.Unlock()
		return
	}
	b.answered[i] = true
	item, now := e.item, s.now()
	took := time.Duration(now - b.sent)
	switch {
	case final:
		s.lose(e, err) // unlocks
	case now >= e.end.Load():
		// Too late, though the timer has not said so yet.
		s.lose(e, e.cause()) // unlocks
	case err != nil:
		e.next = max(e.next, plus(now, retryAfter(e.interval, e.deadline.Load()-now)))
		s.enqueue(e)
		s.arm()
		s.mu.Unlock()
		if s.cfg.Failed != nil {
			s.cfg.Failed(item, err, took)
		}
	default:
		e.renewals++
		s.extend(e, b.sent)
		if !e.used() {
			s.enqueue(e)
		}
		s.arm()
		s.mu.Unlock()
		if s.cfg.Renewed != nil {
			s.cfg.Renewed(item, took)
		}
	}
}

// retryAfter is how long to wait after a failure: about three tenths of the
// interval, or half of what is left if that is less, so that another try fits
// in. Jitter keeps processes that failed together from coming back together.
func retryAfter(interval, left int64) int64 {
	mean := min(interval/10*3, left/2)
	return max(mean/2+rand.N(max(mean, 1)), int64(minRetry))
}

package simulation

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"
)

// Code of users, and of authors of drivers, that the engine has to bear: contexts of types of their own, and a Watch that panics.

// detached is a context that was detached from its end, and has kept the deadline.
type detached struct {
	context.Context
	at time.Time
}

// Deadline implements [context.Context].
func (d detached) Deadline() (time.Time, bool) { return d.at, true }

// endsBy returns the deadline of a context that ends by it.
func endsBy(ctx context.Context) (at time.Time, ends bool) {
	at, ends = ctx.Deadline()
	return at, ends && ctx.Done() != nil
}

// slow is a parent whose Value takes its time, once it is armed.
type slow struct {
	context.Context
	done  chan struct{}
	armed atomic.Bool
	takes time.Duration
}

// Done implements [context.Context].
func (s *slow) Done() <-chan struct{} { return s.done }

// Value implements [context.Context].
func (s *slow) Value(key any) any {
	if s.armed.Load() {
		time.Sleep(s.takes) // virtual time: it stands for work
	}
	return s.Context.Value(key)
}

// drawForeign detaches the context of some calls. Each has a wait instead, or is a TryLock.
func (o *op) drawForeign() {
	w, r := o.c.w, o.c.r
	if !w.foreign || !r.oneIn(3) {
		return
	}
	o.patience, o.cancel = 0, false
	o.detached = 1 + r.upTo(o.ttl).Truncate(w.grain)
	if !o.try && o.wait < 0 {
		o.wait = r.upTo(2 * time.Second).Truncate(w.grain)
	}
}

// slowParent makes a context of h under a parent whose Value is slow from now on. Unlock waits for that Value, and the claim is
// renewed meanwhile: where locks are kept, that is a violation.
func (h *hold) slowParent() {
	w, r := h.c.w, h.c.r
	if !w.foreign || w.sticky || !r.oneIn(3) {
		return
	}
	s := &slow{Context: context.Background(), done: make(chan struct{}), takes: w.longestTTL() / 10}
	h.slow = s.takes
	_ = h.lease.Context(s)
	s.armed.Store(true)
}

// errPanicked is returned by a call whose driver panicked.
var errPanicked = errors.New("the driver panicked")

// mayPanic panics in some calls of Watch.
func (k *link) mayPanic() {
	if !k.w.panics || k.w.ending.Load() {
		return
	}
	k.mu.Lock()
	now := k.r.oneIn(3)
	k.mu.Unlock()
	if now {
		k.w.tell("locker %d: Watch panics", k.locker)
		panic(errPanicked)
	}
}

// recovered makes an error of a panic of the driver.
func recovered(err *error) {
	switch v := recover(); v {
	case nil:
	case errPanicked:
		*err = errPanicked
	default:
		panic(v)
	}
}

// unwatched returns how many Lockers wait for a key that they do not hold, and do not watch it. A watch of another Locker
// may hide one of them.
func (w *world) unwatched(key string) int {
	watches := w.store.at(key).Waiting
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.variant == polls || w.now() < w.trouble {
		return 0
	}
	var waiting, holding []*process
	for o := range w.waits {
		if o.key == key && o.kind == plain && !o.c.p.closed && o.call+stalled < w.now() && !slices.Contains(waiting, o.c.p) {
			waiting = append(waiting, o.c.p)
		}
	}
	for _, h := range w.holds {
		if h.key == key && h.end == 0 {
			holding = append(holding, h.c.p)
		}
	}
	n := 0
	for _, p := range waiting {
		if !slices.Contains(holding, p) {
			n++
		}
	}
	return n - watches
}

package simulation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/distlock/locker"
)

// hold is a lease, from the grant to its end.
type hold struct {
	*op
	lease   *locker.Lease
	token   int64
	over    chan struct{} // closed when its end is known
	renewed atomic.Bool   // by hand
	slow    time.Duration // Unlock waits for so long for a parent of its context

	// Guarded by the world's mutex.
	since time.Duration // the store had the claim then, or later
	end   time.Duration // Unlock was called, or it was lost; 0: neither
	lost  bool
	until time.Time // the deadline when Unlock was called
	stale bool      // it was over when Lock returned it
}

func (h *hold) String() string {
	return fmt.Sprintf("%v of %s by caller %d of locker %d, token %d, granted after %v", h.kind, h.key, h.c.n, h.c.p.index, h.token, h.ret)
}

func (w *world) count(f func(*Result)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f(&w.result)
}

func (p *process) countCall() {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	p.calls++
}

// begin notes a call of Lock.
func (w *world) begin(o *op) {
	w.mu.Lock()
	defer w.mu.Unlock()
	o.call = w.now()
	w.result.Operations++
	o.c.p.calls++
	o.c.p.asking[o.key]++
	if !o.try {
		w.waits[o] = struct{}{}
	}
	w.note("caller %d of locker %d: %v of %s, owner %q, try %t, TTL %v, wait %v, patience %v, renewals %d, max hold %v, margin %v", o.c.n, o.c.p.index, o.kind, o.key, o.owner, o.try, o.ttl, o.wait, o.patience, o.renewals, o.maxHold, o.margin)
}

// returned notes its end. It returns the hold, or nil.
func (w *world) returned(ctx context.Context, o *op, l *locker.Lease, err error) *hold {
	if err != nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		o.ret, o.err = w.now(), err
		delete(w.waits, o)
		o.c.p.asking[o.key]--
		w.note("caller %d: %v of %s: %v", o.c.n, o.kind, o.key, err)
		if errors.Is(err, errPanicked) {
			o.c.p.calls-- // it has no event
			return nil
		}
		w.checkTimely(o)
		w.checkError(ctx, o, err)
		return nil
	}
	h := &hold{op: o, lease: l, token: l.Token(), over: make(chan struct{})}
	lost, deadline := l.Lost(), l.Deadline().Sub(w.began)
	w.mu.Lock()
	o.ret, o.granted = w.now(), true
	delete(w.waits, o)
	o.c.p.asking[o.key]--
	w.result.Granted++
	h.since, h.stale = w.since(h, deadline), w.now() >= deadline
	w.holds = append(w.holds, h)
	w.note("caller %d: %v of %s: granted, token %d, until %v", o.c.n, o.kind, o.key, h.token, deadline)
	w.checkTimely(o)
	if h.stale && (o.kind == plain || w.variant == notified) {
		w.violated("%v: it was over by then", h)
	}
	w.mu.Unlock()
	go func() {
		select {
		case <-lost:
			h.wasLost()
		case <-h.over:
		}
	}()
	return h
}

// wasLost notes that Lost was closed.
func (h *hold) wasLost() {
	w := h.c.w
	deadline, why := h.lease.Deadline(), h.lease.Err()
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.now()
	if h.end == 0 {
		h.end = now
	}
	h.lost = true
	w.result.Lost++
	w.note("caller %d: %s, token %d, is lost: %v", h.c.n, h.key, h.token, why)
	// One that waits at the gate of an RWLock gives that back before it returns: the lease may be over by then.
	if late := min(time.Since(deadline), now-h.ret); late > 0 {
		w.violated("%v: Lost was closed %v after the deadline", h, late)
	}
	if !errors.Is(why, locker.ErrLost) {
		w.violated("%v: Lost is closed, and Err is %v", h, why)
	}
	if w.calm && h.renewals < 0 && h.maxHold == 0 {
		w.violated("%v: lost after %v though nothing is wrong: %v", h, now, why)
	}
}

// held reports whether the lease says that it is held.
func (h *hold) held() bool {
	w := h.c.w
	err, deadline := h.lease.Err(), h.lease.Deadline()
	if err == nil && !time.Now().Before(deadline) {
		w.violate("%v: it says that it is held %v after its deadline", h, time.Since(deadline))
	}
	if err != nil && !errors.Is(err, locker.ErrLost) {
		w.violate("%v: not unlocked, and Err is %v", h, err)
	}
	return err == nil
}

// ask compares what the lease says with what the store has.
func (h *hold) ask() {
	w := h.c.w
	if !h.held() {
		return
	}
	in := w.store.at(h.key)
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.now()
	switch {
	case h.end != 0: // lost in this instant
	case w.broken(h.key, h.since, now):
	case !in.Held:
		w.violated("%v: it says that it is held, and the key is free in the store", h)
	case (h.kind == plain || h.kind == writer && w.variant != notified) && w.fenced && (in.Token > h.token || h.token >= in.Token+w.mostTokens()):
		w.violated("%v: it says that it is held, and the store has token %d", h, in.Token)
	}
	if limit := h.ret + h.maxHold; h.maxHold > 0 && now > limit {
		w.violated("%v: held %v longer than WithMaxHold(%v) allows", h, now-limit, h.maxHold)
	}
	if h.renewals == 0 && !h.renewed.Load() && now > h.ret+h.ttl {
		w.violated("%v: held for %v without a renewal, its TTL is %v", h, now-h.ret, h.ttl)
	}
	if h.renewals > 0 && w.calm && !h.renewed.Load() && now > h.ret+time.Duration(h.renewals+2)*h.ttl/3 {
		w.violated("%v: held for %v, with %d renewals", h, now-h.ret, h.renewals)
	}
}

// ends notes that the caller gives the lease back.
func (h *hold) ends(how string) {
	held, until := h.held(), h.lease.Deadline()
	w := h.c.w
	w.mu.Lock()
	defer w.mu.Unlock()
	w.note("caller %d: %s of %s, token %d, held %t", h.c.n, how, h.key, h.token, held)
	h.until = until
	if h.end == 0 {
		h.end = w.now()
		close(h.over)
	}
}

// since returns when the store had h's claim, or a time before. The deadline counts from when the command was sent that
// the store has answered, a grant or a renewal, also of a claim that was handed over. A claim that is shared has the TTL of
// the caller who asked for it. A lease on an RWLock with gates is on several claims, one of which may have been an earlier
// caller's. It needs the mutex.
func (w *world) since(h *hold, deadline time.Duration) time.Duration {
	switch {
	case h.kind == plain && h.owner == "":
		return deadline - h.ttl
	case h.kind == plain:
		return deadline - w.longestTTL()
	case !w.fenced:
		return h.call - 2*time.Second
	}
	since := h.call
	for _, o := range w.holds {
		if o.key == h.key && o.token <= h.token && h.token <= o.token+locker.MaxHandOvers {
			since = min(since, o.call)
		}
	}
	return since
}

// mostTokens is how many leases there may be on one grant.
func (w *world) mostTokens() int64 {
	if w.sticky {
		return 1024
	}
	return locker.MaxHandOvers + 1
}

// isUnused reports whether nobody in a Locker has the key, or asks for it, in this instant. It is for Lockers that may keep locks.
func (w *world) isUnused(locker int, key string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.sticky || w.ending.Load() || w.procs[locker].asking[key] > 0 {
		return false
	}
	return !slices.ContainsFunc(w.holds, func(h *hold) bool {
		return h.c.p.index == locker && h.key == key && (h.end == 0 || h.end == w.now())
	})
}

// broken reports whether the lock of key was taken away between two times. It needs the mutex.
func (w *world) broken(key string, from, to time.Duration) bool {
	for _, b := range w.breaks {
		if b.key == key && b.from <= to && from <= b.to {
			return true
		}
	}
	return false
}

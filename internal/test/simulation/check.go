package simulation

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/distlock/locker"
)

// soon is how late a call may return when its wait is over.
const soon = 50 * time.Millisecond

// checkTimely wants a call to return when its wait is over. It needs the mutex.
func (w *world) checkTimely(o *op) {
	limit := 30 * time.Second
	attempt := min(4*time.Second, w.longestTTL()) // that of the claim which it re-enters
	once := attempt
	if w.sticky { // a claim that is given up, an attempt, a signal, a pause, and one more attempt
		once = 4*attempt + 300*time.Millisecond
	}
	switch {
	case o.try || o.wait == 0:
		limit = once
	case o.wait > 0:
		limit = max(o.wait, attempt) // an attempt has its time
	}
	if o.patience > 0 {
		limit = min(limit, o.patience)
	}
	if o.kind != plain && w.variant != notified {
		limit += 5 * time.Second // to give the gate back
	}
	if took := o.ret - o.call; took > limit+soon {
		w.violated("%v of %s by caller %d took %v, want %v at most", o.kind, o.key, o.c.n, took, limit)
	}
}

// checkError wants an error to match what has happened. It needs the mutex.
func (w *world) checkError(ctx context.Context, o *op, err error) {
	matched := 0
	for _, kind := range []error{locker.ErrNotAcquired, locker.ErrUnavailable, locker.ErrLost, locker.ErrConflict, locker.ErrInvalid, locker.ErrClosed} {
		if errors.Is(err, kind) {
			matched++
		}
	}
	bad := func(why string) {
		w.violated("%v of %s by caller %d of locker %d: %v: %s", o.kind, o.key, o.c.n, o.c.p.index, err, why)
	}
	over := ctx.Err() != nil || o.patience > 0 && !o.cancel && o.ret >= o.call+o.patience
	switch {
	case matched != 1:
		bad("want one of the package's errors")
	case errors.Is(err, locker.ErrConflict) || errors.Is(err, locker.ErrInvalid):
		bad("nothing calls for it")
	case errors.Is(err, locker.ErrLost) && o.owner == "":
		bad("the caller has no owner, so it has lost nothing")
	case errors.Is(err, locker.ErrLost) && w.calm && !w.ownerMayLose():
		bad("nothing is wrong")
	case errors.Is(err, locker.ErrClosed) && !o.c.p.closed:
		bad("the Locker is open")
	case errors.Is(err, locker.ErrUnavailable) && w.calm && !over && o.wait < 0:
		bad("nothing is wrong")
	case errors.Is(err, locker.ErrNotAcquired) && !o.try && !over && (o.wait < 0 || o.ret < o.call+o.wait):
		bad("its wait is not over")
	}
	if ends := errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled); ends && !over {
		bad("the caller's context has not ended")
	}
}

// ownerMayLose reports whether a named owner's lease may have ended by a limit of its own. It
// needs the mutex.
func (w *world) ownerMayLose() bool {
	return slices.ContainsFunc(w.holds, func(h *hold) bool { return h.owner != "" && h.mayBeOver() })
}

// stalled is how long a free key may have a waiter while nothing is wrong.
const stalled = 1500 * time.Millisecond

// lookForStalls wants a free key to be granted to a waiter, while nothing is wrong.
func (w *world) lookForStalls(ctx context.Context) {
	const every = 50 * time.Millisecond
	free, deaf, grants := map[string]time.Duration{}, map[string]time.Duration{}, w.grants.Load()
	told := false
	for tick := time.NewTicker(every); ; {
		select {
		case <-tick.C:
		case <-ctx.Done():
			tick.Stop()
			return
		}
		if now := w.grants.Load(); now != grants {
			grants = now
			clear(free)
			clear(deaf)
		}
		for _, key := range w.keys {
			if w.unwatched(key) <= 0 {
				delete(deaf, key)
			} else if deaf[key] += every; deaf[key] > stalled && !told {
				w.violate("for %v a Locker has waited for %s without a watch", deaf[key], key)
				told = true
			}
			o := w.longestWait(key)
			if o == nil || w.store.at(key).Held {
				delete(free, key)
				continue
			}
			if free[key] += every; free[key] > stalled && !told {
				w.violate("%s was free for %v, and caller %d of locker %d waits for it since %v", key, free[key], o.c.n, o.c.p.index, o.call)
				told = true
			}
		}
	}
}

// longestWait returns a call that waits for the key for so long that it should have it; nil if there is
// none, or while something is wrong.
func (w *world) longestWait(key string) (longest *op) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.now() < w.trouble {
		return nil
	}
	for o := range w.waits {
		if o.key == key && !o.c.p.closed && o.call+stalled < w.now() && (longest == nil || o.call < longest.call) {
			longest = o
		}
	}
	return longest
}

// check looks at the history as a whole.
func (w *world) check() {
	w.mu.Lock()
	defer w.mu.Unlock()
	slices.SortStableFunc(w.holds, func(a, b *hold) int { return cmp.Compare(a.ret, b.ret) })
	for i, b := range w.holds {
		for _, a := range w.holds[:i] {
			switch {
			case a.key != b.key || a.stale || b.stale || a.shares(b):
			case a.ret < b.ret, a.end > b.ret && b.end > b.ret: // of one instant: none was over in it
				w.checkPair(a, b)
			}
		}
	}
	for _, p := range w.procs {
		p.checkEvents()
	}
}

// shares reports whether two holds may be inside together.
func (h *hold) shares(o *hold) bool {
	if h.kind == reader && o.kind == reader {
		return true
	}
	return h.owner != "" && h.owner == o.owner && (h.c.p == o.c.p || h.c.w.variant == countingHolds)
}

// checkPair wants a, granted before b, to be over by then, and to have the smaller token; in a calm the
// one that has asked first is served first. It needs the mutex.
func (w *world) checkPair(a, b *hold) {
	broken := w.broken(a.key, min(a.since, b.since), b.ret)
	if b.ret < a.end && !broken {
		w.violatedIn(a.since, b.ret, "two hold %s at once, for %v: %v; and %v", a.key, a.end-b.ret, a, b)
	}
	if w.fenced && a.token >= b.token && !broken && a.end <= b.ret {
		w.violatedIn(a.since, b.ret, "the token does not grow: %v; and then %v", a, b)
	}
	inOrder := w.calm && a.kind == plain && b.kind == plain && a.owner == "" && b.owner == "" && !a.try && !b.try && a.c.p == b.c.p
	if inOrder && b.call < a.call && b.call < a.ret-soon {
		w.violatedIn(b.call, a.ret, "served out of turn, having asked after %v: %v; before one that had asked after %v: %v", a.call, a, b.call, b)
	}
}

// checkEvents wants an end for each Acquired, and an event for each call.
func (p *process) checkEvents() {
	w, n := p.w, p.events.n()
	w.result.Kept += p.events.ofKept()
	acquired, ends := n[locker.EventAcquired], n[locker.EventReleased]+n[locker.EventReleaseFailed]+n[locker.EventLetExpire]+n[locker.EventLost]
	if acquired != ends {
		w.violated("locker %d: %d Acquired and %d ends, want as many: %v", p.index, acquired, ends, n)
	}
	named := slices.ContainsFunc(w.holds, func(h *hold) bool { return h.owner != "" })
	if got := acquired + n[locker.EventNotAcquired]; !w.rw && !named && got != p.calls {
		w.violated("locker %d: %d Acquired and NotAcquired, want one for each of %d calls: %v", p.index, got, p.calls, n)
	}
}

package soak

import (
	"slices"
	"time"
)

// check looks for violations on every key.
func (h *history) check() {
	for _, k := range h.sorted() {
		if h.permits > 0 {
			h.checkPermits(k)
		} else {
			h.checkOverlap(k)
			h.checkTokens(k)
		}
		h.replay(k)
		h.checkWiped(k)
		h.checkStalls(k)
	}
}

// checkOverlap wants no hold to be granted before the end of another one. A process that
// was frozen on the way out of Lock returns from Lock when the lease is long over, and the first question
// that it asks shows that. Such a grant is no hold, and its token is in no order.
func (h *history) checkOverlap(k *keyHistory) {
	var last *hold // of those before, the one with the latest end
	for _, next := range k.holds {
		if next.deadline <= next.ret {
			continue
		}
		if last == nil {
			last = next
			continue
		}
		if next.ret < last.end() {
			switch {
			case next.token < last.token && h.lossesWithin(k.key, span{next.since, next.ret}):
				continue // granted before the loss, and Lock returned after it
			case h.lost(last, next.ret):
				h.count[Regranted]++
				h.checkRenewedBeside(k, last, next)
			default:
				h.violate(Overlap, k.key, span{last.ret, next.ret}, "%v, was granted; but another one held on for %v: %v", next, last.end().since(next.ret), last)
			}
		}
		if next.end() > last.end() {
			last = next
		}
	}
}

// lost reports whether a hold may have been lost by design by the time t, since the store had it.
func (h *history) lost(x *hold, t instant) bool {
	had := x.since
	if renewed := proven(x.deadline, x.ttl); renewed <= t {
		had = renewed
	}
	return h.lossesWithin(x.key, span{had, t})
}

// checkRenewedBeside wants a lease not to be renewed after another caller was granted its
// lost lock: a deadline counts from before the renewal was sent.
func (h *history) checkRenewedBeside(k *keyHistory, old, next *hold) {
	if extra := old.end().since(next.ret.add(old.ttl)); extra > 0 {
		h.violate(LateLoss, k.key, span{old.ret, old.end()}, "%v, lost its lock, and held on for %v longer than a TTL after the next grant: %v", old, extra, next)
	}
}

// checkTokens wants the tokens of holds that follow one another to grow.
func (h *history) checkTokens(k *keyHistory) {
	var last *hold // the one with the greatest token
	for _, next := range k.holds {
		if next.deadline <= next.ret {
			continue
		}
		if last == nil || next.token > last.token {
			last = next
			continue
		}
		// One that was granted before a loss may be told so only after the next grant.
		if !h.lossesWithin(k.key, span{next.since, next.ret}) {
			h.violate(TokenOrder, k.key, span{last.ret, next.ret}, "%v, was granted after %v", next, last)
		}
	}
}

// checkWiped wants leases from before a loss of all data to end: no renewal can have
// found their locks.
func (h *history) checkWiped(k *keyHistory) {
	for _, loss := range h.wiped {
		for _, x := range k.holds {
			if end := x.end(); x.ret < loss.from && end > loss.to.add(x.ttl) {
				h.violate(LateLoss, k.key, span{loss.from, end}, "%v, lost its lock with the data of the server, and held on for %v, longer than its TTL", x, end.since(loss.to))
			}
		}
	}
}

// takenWithin is how long a lock may be free while a caller waits for it.
const takenWithin = 1500 * time.Millisecond

// ofInterest is how long a lock is free if that is worth a look.
const ofInterest = 20 * time.Millisecond

// checkStalls wants a lock that is free, and that nothing keeps waiters from, to be granted
// to one of them. Waiters may come and go: each of them looks at once.
func (h *history) checkStalls(k *keyHistory) {
	busy, waits := slices.Clone(h.troubled), spans{}
	end := instant(0)
	wait := func(a attempt) {
		if end = max(end, a.ret); !a.try {
			waits = append(waits, span{a.call, a.ret})
		}
	}
	for _, x := range k.holds {
		busy = append(busy, span{x.ret, x.over(h.linger)})
		wait(x.attempt)
	}
	for _, a := range k.tries {
		if a.unknown {
			busy = append(busy, span{a.call, a.ret.add(a.ttl + h.linger)})
		}
		wait(a)
	}
	waits = waits.merged()
	for _, free := range append(busy, span{end, end}).gaps() {
		if free.length() < ofInterest {
			continue
		}
		for _, w := range waits {
			s := w.and(free)
			h.count[LongestMS] = max(h.count[LongestMS], int(s.length().Milliseconds()))
			if s.length() > takenWithin+h.slack {
				h.violate(Stall, k.key, s, "the lock was free for %v, and callers waited for it all the time", s.length())
			}
		}
	}
}

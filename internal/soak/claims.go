package soak

import (
	"slices"
	"time"
)

// Checks of properties that a strategy claims, see Strategy; and of waits on a store
// that does not let waiters have a free lock.

// shares reports whether two leases are of one hold: of a team, in one process or where
// the store keeps the holds.
func (h *history) shares(a, b *hold) bool {
	return a.team != 0 && a.team == b.team && a.token == b.token && (h.claims.StoredHolds || h.claims.Mixed || a.proc == b.proc)
}

// checkTeams wants a team to be let into its own lock, in whatever process, where the
// store keeps the holds.
func (h *history) checkTeams(k *keyHistory) {
	if !h.claims.StoredHolds || !k.teams {
		return
	}
	for _, a := range k.tries {
		call := span{a.call, a.ret}
		// Of a Lock the wait may have been too short for an answer.
		if a.result != resNotAcquired || a.flags&flagTry == 0 || !h.nothingWrong(a.proc, call) || k.othersWait(a) {
			continue
		}
		for _, x := range k.holds {
			if x.team == a.team && x.ret <= a.call && x.end(h.losses) > a.ret && x.flags&flagUnrenewed == 0 {
				h.violate(WrongAnswer, k.key, call, "%s, op %d: kept out, though its team held from before to after: %v", a.proc.name, a.op, x)
				break
			}
		}
	}
}

// othersWait reports whether others of a's process are about the key meanwhile, whose
// turn is first, or have just given up, with a command still on its way.
func (k *keyHistory) othersWait(a attempt) bool {
	const onItsWay = 250 * time.Millisecond
	call := span{a.call, a.ret}
	return k.sharesProcess(a) || slices.ContainsFunc(k.tries, func(o attempt) bool {
		return o.proc == a.proc && o.op != a.op && call.overlaps(span{o.call, o.ret.add(onItsWay)})
	})
}

// sharesProcess reports whether somebody in a's process has the lock meanwhile, or had
// and does not know that it is lost.
func (k *keyHistory) sharesProcess(a attempt) bool {
	call := span{a.call, a.ret}
	return slices.ContainsFunc(k.holds, func(x *hold) bool {
		return x.proc == a.proc && call.overlaps(span{x.call, x.freed()})
	})
}

// Of what a busy machine may bring about now and then, so much is too much.
const few = 5

func tooMany(n, of int) bool { return n > few && n > of/20 }

// checkTurns wants processes to take turns: while one waits, another one is granted the
// lock once, if it came earlier, and at most once more, by the time that the first is in
// the queue again after its own turn. What a process hands over within itself is one turn.
func (h *history) checkTurns(k *keyHistory) {
	if !h.claims.Fair {
		return
	}
	const toQueue = 2 * time.Millisecond // the way to the server
	type place struct {                  // each Locker has one; those of guests come and go
		proc  *process
		guest bool
	}
	in := func(x *hold) place { return place{x.proc, x.flags&flagGuest != 0} }
	last := make(map[place]instant)         // when it gave the lock back
	begins := make([]instant, len(k.holds)) // each hold's turn
	for i, x := range k.holds {
		begins[i] = x.ret
		// The store's tokens are microseconds, a hand-over's is the next one.
		if i > 0 && in(x) == in(k.holds[i-1]) && x.token == k.holds[i-1].token+1 {
			begins[i] = begins[i-1]
		}
		from := max(x.call, last[in(x)]).add(toQueue)
		last[in(x)] = max(last[in(x)], x.freed())
		if x.flags&flagTry != 0 || x.team != 0 || !h.nothingWrong(nil, span{from, x.ret}) {
			continue
		}
		turns := make(map[place]int)
		counted := make(map[instant]bool)
		for j := i - 1; j >= 0 && k.holds[j].ret > from; j-- {
			y := k.holds[j]
			if in(y) != in(x) && y.team == 0 && y.flags&flagTry == 0 && !counted[begins[j]] {
				counted[begins[j]] = true
				turns[in(y)]++
			}
		}
		most := 0
		for _, n := range turns {
			most = max(most, n)
		}
		if most > 0 {
			h.stats.Waited++
		}
		if most > 2 {
			h.stats.Overtaken++
		}
	}
}

// checkWakeUps counts the releases that woke a waiter of another process, and those that
// nobody noticed at once though somebody waited.
func (h *history) checkWakeUps(k *keyHistory, gap span) {
	const (
		atOnce = 500 * time.Millisecond // waiters look once a second by themselves
		asked  = 20 * time.Millisecond  // by then a waiter was refused
		// By then who lost its subscription has another one.
		subscribed = time.Second
	)
	if !h.claims.Notified || !h.nothingWrong(nil, gap) || h.silent.between(gap.from.add(-subscribed), gap.to) {
		return
	}
	i := slices.IndexFunc(k.holds, func(x *hold) bool { return x.unlocked && x.unlock.result == resOK && x.unlock.to == gap.from })
	if i < 0 {
		return
	}
	waits := func(a attempt) bool {
		return a.flags&flagTry == 0 && a.proc != k.holds[i].proc && a.call.add(asked) < gap.from && a.ret >= gap.to
	}
	woken := slices.ContainsFunc(k.holds, func(x *hold) bool { return waits(x.attempt) && x.ret == gap.to })
	late := gap.to.since(gap.from) > atOnce &&
		(slices.ContainsFunc(k.holds, func(x *hold) bool { return waits(x.attempt) }) || slices.ContainsFunc(k.tries, waits))
	if woken || late {
		h.stats.Releases++
	}
	if late {
		h.stats.Unnoticed++
	}
}

// checkClaims sums up.
func (h *history) checkClaims() {
	if s := h.stats; tooMany(s.KeptOut, s.Reentries) {
		h.sumUp(WrongAnswer, "of %d re-entries %d were kept out of their own lock for a TTL while nothing was wrong", s.Reentries, s.KeptOut)
	}
	if s := h.stats; tooMany(s.Overtaken, s.Waited) {
		h.sumUp(Unfair, "of %d who waited for another process %d were overtaken by one more often than turns explain", s.Waited, s.Overtaken)
	}
	if s := h.stats; tooMany(s.Unnoticed, s.Releases) {
		h.sumUp(Stall, "of %d releases that should have woken somebody %d did not do so at once", s.Releases, s.Unnoticed)
	}
}

// checkRefusals wants waiters not to wait for a free lock where only a person can help:
// the server is out of memory, or something that is no lock is at the key.
func (h *history) checkRefusals(k *keyHistory) {
	const (
		soon = 500 * time.Millisecond  // the next attempt after a refusal by a holder's poller
		look = 1500 * time.Millisecond // and at the latest
		hung = 5 * time.Second         // a command may be on its way for so long
	)
	for _, a := range k.tries {
		if a.flags&flagTry != 0 || spans(a.proc.frozen).between(a.call, a.ret) {
			continue
		}
		for _, thing := range h.foreign[k.key] {
			if in := (span{max(a.call, thing.from), min(a.ret, thing.to)}); in.to.since(in.from) > look+h.slack && !k.sharesProcess(a) {
				h.violate(WrongAnswer, k.key, in, "%s, op %d: waited for %v, and what was at the key was no lock", a.proc.name, a.op, in)
			}
		}
		for _, full := range h.full {
			in := span{max(a.call, full.from), min(a.ret, full.to)}
			before := span{in.from.add(-hung), in.to}
			if !h.quorum && in.to.since(in.from) > soon+h.slack && h.nothingBut(h.full, nil, before) && !k.heldIn(in, full.from, h.maxTTL) {
				h.violate(Slow, k.key, in, "%s, op %d: waited for %v, and the server was out of memory", a.proc.name, a.op, in)
			}
		}
	}
}

// heldIn reports whether anybody may have held during s. Nobody was granted the lock
// since t but those who know.
func (k *keyHistory) heldIn(s span, t instant, ttl time.Duration) bool {
	return slices.ContainsFunc(k.holds, func(x *hold) bool { return s.overlaps(span{x.call, x.freed()}) }) ||
		slices.ContainsFunc(k.tries, func(a attempt) bool {
			return a.unknown && a.call < t && s.overlaps(span{a.call, a.ret.add(ttl)})
		})
}

package soak

import (
	"cmp"
	"slices"
	"time"
)

// check looks for violations on every key.
func (h *history) check() {
	for _, k := range h.sort() {
		h.checkOverlap(k)
		h.checkTokens(k)
		h.checkLostData(k)
		h.checkStalls(k)
		h.checkOrder(k)
		h.checkTeams(k)
		h.checkTurns(k)
		h.checkRefusals(k)
	}
	h.checkRenewals()
	h.checkClaims()
}

// checkOverlap wants no hold granted before the end of another one.
func (h *history) checkOverlap(k *keyHistory) {
	data := h.losses
	var last *hold // of those before, the one with the latest end
	for _, next := range k.holds {
		if last == nil {
			last = next
			continue
		}
		if end := last.end(data); next.ret < end && !h.shares(next, last) {
			if next.token != 0 && next.token < last.token && data.between(next.since, next.ret) {
				continue // granted before the data was lost, and told so only after it
			}
			if data.between(last.since, next.ret) {
				h.stats.Excused++
				last = next
				continue
			}
			h.violate(Overlap, k.key, span{last.ret, next.ret}, "%v, held on for %v after %v, was granted", last, end.since(next.ret), next)
		}
		if next.end(data) > last.end(data) {
			last = next
		}
	}
}

// checkTokens wants the tokens of grants that follow one another to grow. A process that
// was frozen on the way out of Lock is told of its grant when that is long over, and so
// by the first question it asks: that is no hold, and in no order.
func (h *history) checkTokens(k *keyHistory) {
	var last *hold
	for _, next := range k.holds {
		if next.deadline <= next.ret || next.token == 0 {
			continue
		}
		// But one that was granted before the data was lost may be told so only after it.
		if last != nil && next.token <= last.token && !h.shares(next, last) && !h.losses.between(next.since, next.ret) {
			h.violate(TokenOrder, k.key, span{last.ret, next.ret}, "%v, was granted after %v", next, last)
		}
		last = next
	}
}

// checkLostData wants leases from before a loss of data to end: nobody can have
// renewed them.
func (h *history) checkLostData(k *keyHistory) {
	for _, loss := range h.losses {
		for _, x := range k.holds {
			if x.ret > loss.from {
				break
			}
			if end := x.end(h.losses); end > loss.to.add(x.ttl) {
				h.violate(LateLoss, k.key, span{loss.from, end}, "%v, lost its lock with the data of the server, and held on for %v, longer than its TTL", x, end.since(loss.to))
			}
		}
	}
}

// takenWithin is how long a lock may be free while somebody waits for it.
const takenWithin = 1500 * time.Millisecond

// checkStalls wants a lock that is free, that somebody waits for, and that nothing
// keeps the waiters from, to be taken. Waiters may come and go: each looks at once.
func (h *history) checkStalls(k *keyHistory) {
	for _, gap := range h.gaps(k) {
		h.checkWakeUps(k, gap)
		if gap.to.since(gap.from) < stallOfInterest {
			continue
		}
		for _, quiet := range h.quiet(k.key, gap) {
			for _, s := range waited(k, quiet) {
				d := s.to.since(s.from)
				h.stats.Longest = max(h.stats.Longest, d)
				if d > takenWithin+h.slack {
					h.violate(Stall, k.key, s, "the lock was free for %v, and somebody waited for it all the time", d)
				}
			}
		}
	}
}

const stallOfInterest = 50 * time.Millisecond

// gaps are the times in which nobody can have held the key.
func (h *history) gaps(k *keyHistory) []span {
	var taken []span
	shared := h.haunted(k)
	for _, x := range k.holds {
		freed := x.freed()
		if shared[x.token] {
			freed = x.over()
		}
		taken = append(taken, span{x.ret, freed})
	}
	for _, a := range k.tries {
		if a.unknown {
			taken = append(taken, span{a.call, a.ret.add(h.maxTTL)})
		}
	}
	var last instant
	for _, a := range k.tries {
		last = max(last, a.ret)
	}
	slices.SortFunc(taken, func(a, b span) int { return cmp.Compare(a.from, b.from) })
	return complement(taken, last)
}

// haunted are the tokens of holds that a team shares, or may share, with a member that
// was killed or whose release was not answered: others who come and go lengthen that
// one's hold as well.
func (h *history) haunted(k *keyHistory) map[int64]bool {
	type hold struct {
		team team
		span
	}
	holds := map[int64]hold{}
	all := map[int64]bool{}
	for _, x := range k.holds {
		if x.team == 0 {
			continue
		}
		all[x.token] = all[x.token] || !x.unlocked || x.unlock.result != resOK
		g, ok := holds[x.token]
		if !ok {
			g = hold{x.team, span{x.since, x.ret}}
		}
		g.to = max(g.to, x.over())
		holds[x.token] = g
	}
	ghost := 3 * h.maxTTL // a command of a dead process, out of a black hole
	for _, a := range k.tries {
		for token, g := range holds {
			all[token] = all[token] || a.unknown && a.team == g.team && g.overlaps(span{a.call, a.ret.add(ghost)})
		}
	}
	return all
}

// quiet are the parts of s in which nothing keeps waiters from a free lock.
func (h *history) quiet(key uint16, s span) []span {
	var troubled []span
	for _, t := range slices.Concat(h.troubled, h.foreign[key]) {
		t.to = t.to.add(h.maxTTL) // what it has left behind
		if t.overlaps(s) {
			troubled = append(troubled, span{max(t.from, s.from), t.to})
		}
	}
	slices.SortFunc(troubled, func(a, b span) int { return cmp.Compare(a.from, b.from) })
	return complement(append([]span{{s.from, s.from}}, troubled...), s.to)
}

// complement are the times between spans, which are sorted by from, and between the
// last of them and end.
func complement(spans []span, end instant) []span {
	var between []span
	for i, s := range spans {
		if i == 0 {
			continue
		}
		if free := spans[i-1].to; s.from > free {
			between = append(between, span{free, s.from})
		}
		spans[i].to = max(s.to, spans[i-1].to)
	}
	if n := len(spans); n > 0 && end > spans[n-1].to {
		between = append(between, span{spans[n-1].to, end})
	}
	return between
}

// waited are the parts of s in which somebody waited.
func waited(k *keyHistory, s span) []span {
	var parts []span
	add := func(a attempt) {
		if w := (span{a.call, a.ret}); a.flags&flagTry == 0 && w.overlaps(s) {
			parts = append(parts, span{max(w.from, s.from), min(w.to, s.to)})
		}
	}
	for _, a := range k.tries {
		if a.call > s.to {
			break
		}
		add(a)
	}
	for _, x := range k.holds {
		add(x.attempt)
	}
	slices.SortFunc(parts, func(a, b span) int { return cmp.Compare(a.from, b.from) })
	var joined []span
	for _, p := range parts {
		if n := len(joined); n > 0 && p.from <= joined[n-1].to {
			joined[n-1].to = max(joined[n-1].to, p.to)
		} else {
			joined = append(joined, p)
		}
	}
	return joined
}

package soak

import (
	"time"
)

// reader makes holds and attempts of the records of one process.
type reader struct {
	*history
	p       *process
	pending map[uint32]attempt
	open    map[uint32]*hold
	last    map[uint16]uint32 // the op of each caller
}

// read takes in the log of p, and checks what can be seen in one process alone.
func (h *history) read(p *process) error {
	h.frozen = append(h.frozen, p.frozen...)
	r := &reader{h, p, make(map[uint32]attempt), make(map[uint32]*hold), make(map[uint16]uint32)}
	var last instant
	err := readLog(p.spec.Log, func(rec record) {
		last = max(last, rec.at)
		r.record(rec)
	})
	if err != nil {
		return err
	}
	if p.killed != 0 {
		last = p.killed
	}
	for _, a := range r.pending {
		a.ret, a.unknown = last, true
		h.stats.Unknown++
		h.at(a.key).tries = append(h.at(a.key).tries, a)
	}
	for _, hold := range r.open {
		if !hold.unlocked {
			hold.killed = last
		}
	}
	return nil
}

func (r *reader) record(rec record) {
	hold := r.open[rec.op]
	if hold != nil && rec.kind != recWrite {
		hold.deadline = max(hold.deadline, rec.deadline)
	}
	if rec.kind == recWrong {
		r.violate(WrongAnswer, rec.key, span{rec.at, rec.at}, "%s, %s", r.p.name, r.p.complaint(rec.op))
		return
	}
	if rec.result == resConflict && !r.foreign[rec.key].between(r.pending[rec.op].call, rec.at) {
		rec.result = resOther
	}
	if rec.result == resFull && !r.full.between(rec.at.add(-r.maxTTL), rec.at) {
		rec.result = resUnavailable // it only says so
	}
	if rec.result == resOther {
		r.violate(Unexpected, rec.key, span{rec.at, rec.at}, "%s, op %d: %v returned an error that nothing calls for: %s", r.p.name, rec.op, rec.kind, r.p.complaint(rec.op))
	}
	switch {
	case rec.kind == recLock:
		r.stats.count(rec)
		if rec.flags&flagInner != 0 {
			hold.inner = rec.at
			return
		}
		delete(r.open, r.last[rec.caller])
		r.last[rec.caller] = rec.op
		r.pending[rec.op] = attempt{
			proc: r.p, flags: rec.flags, key: rec.key, op: rec.op, team: rec.team, call: rec.at,
			since: rec.at, ttl: time.Duration(rec.ttl) * time.Millisecond, wait: time.Duration(rec.wait) * time.Millisecond,
		}
	case rec.flags&flagInner != 0:
		r.innerRecord(hold, rec)
	case rec.kind == recGranted || rec.kind == recRefused:
		r.returned(rec)
	case hold == nil:
		r.violate(Unexpected, rec.key, span{rec.at, rec.at}, "%s: the log has %v of op %d, which has no lease", r.p.name, rec.kind, rec.op)
	default:
		r.leaseRecord(hold, rec)
	}
}

// returned is the end of a Lock or TryLock.
func (r *reader) returned(rec record) {
	a := r.pending[rec.op]
	delete(r.pending, rec.op)
	if a.team != 0 {
		a.since = a.call.add(-r.maxTTL) // a lost one lives no longer
	}
	a.ret, a.result = rec.at, rec.result
	limit := a.wait
	if a.flags&flagTry != 0 {
		limit = a.ttl // an attempt is given no longer
	}
	r.wantPrompt(a.key, span{a.call, a.ret}, limit, "Lock", a.op)
	if rec.kind == recRefused {
		a.unknown = !a.result.available()
		r.wantRefused(a)
		r.stats.refused(a)
		r.at(a.key).tries = append(r.at(a.key).tries, a)
		return
	}
	r.wantToken(rec)
	if late := r.late(span{rec.deadline, rec.at}); late > r.slack {
		r.violate(Outlived, rec.key, span{rec.deadline, rec.at}, "%s, op %d: granted %v after the end of the lease", r.p.name, rec.op, late)
	}
	h := &hold{attempt: a, token: rec.token, first: rec.deadline, deadline: rec.deadline}
	if rec.wait > 0 {
		h.limit = rec.at.add(time.Duration(rec.wait) * time.Microsecond)
	}
	r.stats.Granted++
	r.open[rec.op] = h
	k := r.at(a.key)
	k.holds = append(k.holds, h)
	k.teams = k.teams || a.team != 0
}

func (r *reader) leaseRecord(h *hold, rec record) {
	here := span{rec.at, rec.at}
	yes := rec.flags&flagYes != 0
	switch rec.kind {
	case recAsk:
		r.wantRenewed(h, rec.at)
		if yes && rec.at >= rec.deadline {
			r.violate(Outlived, rec.key, here, "%s, op %d: %v after its deadline the lease says that it is held", r.p.name, rec.op, rec.at.since(rec.deadline))
		}
		if !yes {
			r.wantReason(h, rec.at)
		}
		if yes && h.limit != 0 && rec.at >= h.limit {
			r.violate(Outlived, rec.key, here, "%s, op %d: %v after its limit the lease says that it is held", r.p.name, rec.op, rec.at.since(h.limit))
		}
		if yes && h.refused != 0 && !r.losses.between(h.since, rec.at) {
			r.violate(Overlap, rec.key, span{h.refused, rec.at}, "%s, op %d: the lease says that it is held; but the resource has refused its token %d, so somebody else was granted a greater one", r.p.name, rec.op, h.token)
		}
	case recLost:
		h.lost = rec.at
		r.stats.Lost++
		r.wantRenewed(h, rec.at)
		r.wantReason(h, rec.at)
		if late := r.late(span{rec.deadline, rec.at}); late > r.slack {
			r.violate(LateLoss, rec.key, span{rec.deadline, rec.at}, "%s, op %d: Lost was closed %v after the deadline", r.p.name, rec.op, late)
		}
	case recRenew:
		r.stats.count(rec)
		h.renews = append(h.renews, answer{span: span{from: rec.at}})
	case recRenewed:
		last := &h.renews[len(h.renews)-1]
		last.to, last.result = rec.at, rec.result
		r.wantPrompt(rec.key, last.span, h.ttl, "Renew", rec.op)
	case recUnlock:
		r.stats.count(rec)
		h.asked = rec.at
		if h.unlock.from == 0 {
			h.unlock.from = rec.at
		}
	case recUnlocked:
		r.unlocked(h, rec)
	case recClose:
		h.closed = rec.at
	case recClosed:
		r.wantPrompt(rec.key, span{h.closed, rec.at}, closeWithin, "Close", rec.op)
	case recWrite:
		r.stats.Writes++
		if !yes {
			h.refused = rec.deadline
		}
	}
}

// wantRefused wants whoever waits to do so until the wait is over, and a healthy store
// to be available.
func (r *reader) wantRefused(a attempt) {
	call := span{a.call, a.ret}
	early := a.result == resNotAcquired || a.result == resUnavailable && !r.longTroubles && !r.full.between(a.call, a.ret)
	if took := a.ret.since(a.call); early && a.flags&flagTry == 0 && took < a.wait {
		r.violate(WrongAnswer, a.key, call, "%s, op %d: Lock gave up after %v of %v: %v", r.p.name, a.op, took, a.wait, a.result)
	}
	// That no answer came in time may be the machine's fault; Lock may be told what became
	// of another's attempt.
	if a.flags&flagTry != 0 {
		r.wantAvailable(a.key, a.op, a.result, call)
	}
}

// wantAvailable wants a call that was answered not to have been answered that the store
// is unavailable while nothing was wrong, or no more than that while it was out of memory.
func (r *reader) wantAvailable(key uint16, op uint32, result result, call span) {
	took := call.to.since(call.from)
	if result != resUnavailable || took >= answered {
		return
	}
	switch {
	case r.nothingWrong(r.p, call):
		r.violate(Unavailable, key, call, "%s, op %d: ErrUnavailable after %v while nothing was wrong", r.p.name, op, took)
	case !r.quorum && r.full.around(call) && r.nothingBut(r.full, r.p, call):
		r.violate(WrongAnswer, key, call, "%s, op %d: ErrUnavailable after %v does not say that the server is out of memory", r.p.name, op, took)
	}
}

// maxToken is what fits into the numbers of every language.
const maxToken = 1 << 53

// wantToken wants a token where there is to be one, and no greater than all can read.
func (r *reader) wantToken(rec record) {
	none := r.claims.Unfenced || rec.flags&flagUnfenced != 0
	if none != (rec.token == 0) || rec.token < 0 || rec.token > maxToken {
		r.violate(TokenOrder, rec.key, span{rec.at, rec.at}, "%s, op %d: granted token %d; want none: %t", r.p.name, rec.op, rec.token, none)
	}
}

// answered is how soon a call has ended by an answer, not for want of one.
const answered = 150 * time.Millisecond

// wantRenewed notes whether a lease that was in use when it would have ended without a
// renewal was renewed, if nothing was wrong. That one was not may be the machine's fault.
func (r *reader) wantRenewed(h *hold, t instant) {
	const unrenewed = flagLimited | flagUnrenewed
	if h.flags&unrenewed != 0 || h.team != 0 || h.overdue || t < h.first || !r.nothingWrong(r.p, span{h.ret, h.first}) {
		return
	}
	h.overdue = true
	r.stats.Overdue++
	if t >= h.deadline {
		r.stats.Ended++
	}
}

// wantReason wants a reason for a loss.
func (r *reader) wantReason(h *hold, t instant) {
	if t >= h.deadline || h.flags&flagLimited != 0 || h.closed != 0 || r.losses.between(h.since, t) {
		return
	}
	r.violate(FalseLoss, h.key, span{h.ret, t}, "%s, op %d: the lease was lost %v before its deadline", r.p.name, h.op, h.deadline.since(t))
}

func (r *reader) unlocked(h *hold, rec record) {
	here := span{h.unlock.from, rec.at}
	r.wantPrompt(rec.key, span{h.asked, rec.at}, unlockWithin, "Unlock", rec.op)
	switch {
	case h.unlocked && rec.result != resNotHeld, !h.unlocked && rec.result == resNotHeld:
		r.violate(WrongAnswer, rec.key, here, "%s, op %d: Unlock returned %v; an Unlock before it was answered: %t", r.p.name, rec.op, rec.result, h.unlocked)
	case h.unlocked:
	case !rec.result.available():
		r.stats.Unavailable++
		r.wantAvailable(rec.key, rec.op, rec.result, span{h.asked, rec.at})
	case rec.result == resOK || rec.result == resLost:
		if rec.result == resLost && !r.twice.between(h.unlock.from, rec.at) {
			r.wantReason(h, rec.at)
		}
		h.unlocked, h.unlock.result, h.unlock.to = true, rec.result, rec.at
	}
}

func (r *reader) innerRecord(h *hold, rec record) {
	switch rec.kind {
	case recRefused:
		if call := (span{h.inner, rec.at}); rec.result == resNotAcquired && r.nothingWrong(r.p, call) {
			r.stats.KeptOut++ // once may be the machine's fault
		}
	case recGranted:
		if h.inner >= rec.deadline {
			r.violate(Outlived, rec.key, span{h.inner, rec.at}, "%s, op %d: re-entered %v after the deadline", r.p.name, rec.op, h.inner.since(rec.deadline))
		}
		if rec.token != h.token {
			r.violate(TokenOrder, rec.key, span{h.call, rec.at}, "%s, op %d: token %d on re-entry, and %d before", r.p.name, rec.op, rec.token, h.token)
		}
	case recUnlock:
		r.stats.count(rec)
	}
}

// late is how long s lasted for a process that ran: what it was frozen does not
// count, and neither does what comes before.
func (r *reader) late(s span) time.Duration {
	for _, f := range r.p.frozen {
		if f.overlaps(s) {
			s.from = max(s.from, f.to)
		}
	}
	return max(0, s.to.since(s.from))
}

// wantPrompt wants a call to return when its wait is over.
func (r *reader) wantPrompt(key uint16, s span, limit time.Duration, what string, op uint32) {
	if took := r.late(s); took > limit+r.slack {
		r.violate(Slow, key, s, "%s, op %d: %s took %v, %v of them with no reason", r.p.name, op, what, s, took-limit)
	}
}

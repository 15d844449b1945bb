package soak

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/distlock/locker/internal/spec"
)

// A history has the events of one strategy in one arena in a round.
type history struct {
	slack      time.Duration
	permits    int           // of each key; 0: they are locks
	linger     time.Duration // how long the store may keep a lock after its TTL
	keys       map[uint16]*keyHistory
	losses     spans // in which locks may have been lost
	wiped      spans // in which all of them were
	doubled    spans // in which releases may have arrived twice
	troubled   spans // in which a free lock may go untaken
	count      map[string]int
	found      map[Kind]int
	processes  uint64      // that were read
	violations []Violation // a few of each kind
}

// keyHistory has the events of one key.
type keyHistory struct {
	key   uint16
	holds []*hold
	tries []attempt // those that got nothing
	trace []spec.Event

	broken spans // in which its lock may have been taken away
}

// attempt is a Lock or TryLock.
type attempt struct {
	p         *process
	op        uint32
	key       uint16
	try       bool
	ttl, wait time.Duration
	permits   int // that it asks for; 0 of a lock
	call, ret instant
	unknown   bool // it may have got the lock: the caller was not told
}

// proven returns when the store had a lock, or a time before: the deadline of a lease counts from when the command
// was sent that the store has answered, a grant or a renewal. So it does where the lock was handed over, or was kept.
func proven(deadline instant, ttl time.Duration) instant { return deadline.add(-ttl) }

// hold is a lease, from the grant to its end.
type hold struct {
	attempt   // ret is when the grant was returned
	token     int64
	since     instant // the store had the lock then, or later: by the first deadline
	deadline  instant // the last one known
	unlocking instant // when Unlock was called first; 0, here and below: it was not
	freed     instant // when Unlock returned nil
	killed    instant // when the process died
	lost      instant // when the holder was told
	closed    bool    // Lost was
	refused   instant // when the resource refused its token
	reentry   instant // when the re-entry under way was called
	asked     instant // when the Unlock under way was called
	free      instant // since when its caller has been in no call
}

func (h *hold) String() string {
	if h.permits > 0 {
		return fmt.Sprintf("%s, op %d, with %d permits and token %d", h.p.name, h.op, h.permits, h.token)
	}
	return fmt.Sprintf("%s, op %d, with token %d", h.p.name, h.op, h.token)
}

// end is when the holder had no reason any more to think that it holds.
func (h *hold) end() instant {
	end := h.deadline
	for _, t := range []instant{h.unlocking, h.killed, h.lost} {
		if t != 0 {
			end = min(end, t)
		}
	}
	return end
}

// over is when the key is free in the store at the latest, if no other caller gets it. A
// last renewal may have been applied without an answer; once Unlock was called, none is sent.
func (h *hold) over(linger time.Duration) instant {
	switch {
	case h.freed != 0:
		return h.freed
	case h.killed != 0 && h.unlocking == 0:
		return h.killed.add(h.ttl + linger)
	}
	return max(h.deadline, h.unlocking).add(h.ttl + linger)
}

func newHistory(a *arena, s Strategy) *history {
	h := &history{
		slack: a.cfg.Slack, permits: s.Permits, linger: a.cfg.linger(a.topology), keys: make(map[uint16]*keyHistory), count: make(map[string]int), found: make(map[Kind]int),
	}
	for _, e := range a.events {
		if e.loss != lossNone && (e.loss != lossUnconfirmed || !s.Acked) {
			h.losses = append(h.losses, e.span)
		}
		if e.loss == lossAll {
			h.wiped = append(h.wiped, e.span)
		}
		if e.fault.doubles {
			h.doubled = append(h.doubled, e.span)
		}
		if !e.fault.harmless {
			h.troubled = append(h.troubled, span{e.from, e.to.add(a.maxTTL + h.linger)}) // with what it leaves behind
		}
	}
	return h
}

func (h *history) at(key uint16) *keyHistory {
	if h.keys[key] == nil {
		h.keys[key] = &keyHistory{key: key}
	}
	return h.keys[key]
}

// mostOfAKind is how many violations of a kind are described; all are counted.
const mostOfAKind = 5

func (h *history) violate(kind Kind, key uint16, around span, format string, args ...any) {
	if h.found[kind]++; h.found[kind] <= mostOfAKind {
		h.violations = append(h.violations, Violation{Kind: kind, Text: fmt.Sprintf(format, args...), key: key, around: around})
	}
}

// reader makes holds and attempts of the records of one process.
type reader struct {
	*history
	p       *process
	number  uint64             // of the process
	pending map[uint32]attempt // by op
	open    map[uint32]*hold   // by op
}

// read takes in what p has logged about a strategy, and checks what can be seen in one
// process alone.
func (h *history) read(p *process, strategy uint8) error {
	r := &reader{h, p, h.processes, make(map[uint32]attempt), make(map[uint32]*hold)}
	h.processes++
	last := instant(0)
	err := readLog(p.spec.Log, func(rec record) {
		last = max(last, rec.At)
		if rec.Strategy == strategy {
			r.record(rec)
		}
	})
	if p.killed != 0 {
		last = max(last, p.killed) // it ran on for a moment until the signal came
	}
	for _, a := range r.pending {
		a.ret, a.unknown = last, true
		r.died(a.key, a.op, last)
		h.count[Unknown]++
		h.at(a.key).tries = append(h.at(a.key).tries, a)
	}
	for _, x := range r.open {
		x.killed = last
		r.died(x.key, x.op, last)
	}
	return err
}

func (r *reader) record(rec record) {
	r.trace(rec)
	x := r.open[rec.Op]
	if x != nil {
		x.deadline = max(x.deadline, rec.Deadline)
	}
	if !rec.isCalledFor() {
		r.violate(Unexpected, rec.Key, span{rec.At, rec.At}, "%s, op %d: %v: %v, which nothing calls for; see %s", r.p.name, rec.Op, rec.Kind, rec.Result, r.p.errPath())
	}
	inner := rec.Flags&flagInner != 0
	if rec.isCall() {
		r.count[Operations]++
	}
	switch {
	case rec.Kind == recLock && !inner:
		r.pending[rec.Op] = attempt{
			p: r.p, op: rec.Op, key: rec.Key, try: rec.Flags&flagTry != 0, call: rec.At,
			ttl: time.Duration(rec.TTL) * time.Millisecond, wait: time.Duration(rec.Wait) * time.Millisecond,
			permits: int(rec.Permits),
		}
	case (rec.Kind == recGranted || rec.Kind == recRefused) && !inner:
		r.returned(rec)
	case inner:
		r.inner(x, rec)
	default:
		r.lease(x, rec)
	}
	if x != nil {
		x.free = rec.At
	}
}

// returned reads the end of a Lock or TryLock.
func (r *reader) returned(rec record) {
	a := r.pending[rec.Op]
	delete(r.pending, rec.Op)
	a.ret = rec.At
	limit := a.wait
	if a.try {
		limit = a.ttl // an attempt is given no longer
	}
	r.wantReturn(rec, "Lock", a.call, limit)
	if rec.Kind == recRefused {
		a.unknown = rec.Result == resUnavailable
		r.at(a.key).tries = append(r.at(a.key).tries, a)
		return
	}
	r.count[Granted]++
	x := &hold{attempt: a, token: rec.Token, since: proven(rec.Deadline, a.ttl), deadline: rec.Deadline}
	r.open[rec.Op] = x
	r.at(a.key).holds = append(r.at(a.key).holds, x)
	r.wantTold(x, rec, "Lock returned the lease")
}

// lease reads a record about a lease.
func (r *reader) lease(x *hold, rec record) {
	yes := rec.Flags&flagYes != 0
	switch rec.Kind {
	case recAsk:
		if !yes && x.lost == 0 {
			x.lost = rec.At
		}
		if yes && rec.At >= rec.Deadline {
			r.violate(LateLoss, x.key, span{rec.Deadline, rec.At}, "%v: %v after its deadline the lease says that it is held", x, rec.At.since(rec.Deadline))
		}
		if yes && x.refused != 0 && !r.lossesWithin(x.key, span{x.since, rec.At}) {
			r.violate(Overlap, x.key, span{x.refused, rec.At}, "%v: the lease says that it is held; but the resource has refused its token, so another caller was granted a greater one", x)
		}
	case recLost:
		r.count[Lost]++
		r.wantReason(x, rec)
		x.closed = true
		if x.lost == 0 {
			x.lost = rec.At
		}
		r.wantTold(x, rec, "Lost was closed")
	case recUnlock:
		if x.asked = rec.At; x.unlocking == 0 {
			x.unlocking = rec.At
			if !x.closed {
				r.wantTold(x, rec, "Lost was still open")
			}
		}
	case recRenewed:
		if rec.Result == resLost {
			r.wantReason(x, rec)
		}
	case recUnlocked:
		r.wantReturn(rec, "Unlock", x.asked, r.unlockTime(x.asked))
		switch {
		case rec.Result == resOK:
			x.freed = rec.At
		case rec.Result == resLost && !r.doubled.overlap(span{x.unlocking, rec.At}):
			r.wantReason(x, rec)
		}
		if rec.Result != resUnavailable {
			delete(r.open, rec.Op)
		}
	case recWrite:
		if !yes {
			r.count[Stale]++
			x.refused = rec.At
		}
	}
}

// inner reads a record about a re-entry.
func (r *reader) inner(x *hold, rec record) {
	switch rec.Kind {
	case recLock:
		x.reentry = rec.At
	case recRefused:
		// It may be refused when its context has ended: with the lease, or when its time is over.
		if rec.Result == resLost || rec.Result == resNotAcquired && rec.At < x.reentry.add(x.ttl) {
			r.wantReason(x, rec)
		}
	case recGranted:
		if x.reentry >= rec.Deadline {
			r.violate(LateLoss, x.key, span{x.reentry, rec.At}, "%v: re-entered %v after the deadline", x, x.reentry.since(rec.Deadline))
		}
		if rec.Token != x.token {
			r.violate(TokenOrder, x.key, span{x.ret, rec.At}, "%v: token %d on re-entry", x, rec.Token)
		}
	}
}

// wantReason wants a lease that is lost before its deadline to have lost its lock by design, since the store had it.
func (r *reader) wantReason(x *hold, rec record) {
	if !x.closed && rec.At < x.deadline && !r.lossesWithin(x.key, span{proven(x.deadline, x.ttl), rec.At}) {
		r.violate(Unexpected, x.key, span{x.ret, rec.At}, "%v: %v: it was lost %v before its deadline, and nothing has taken its lock away", x, rec.Kind, x.deadline.since(rec.At))
	}
}

// late is how long a process ran between two instants, after the last time that it was frozen.
func (r *reader) late(from, to instant) time.Duration {
	for _, f := range r.p.frozen {
		if f.overlaps(span{from, to}) {
			from = f.to
		}
	}
	return max(0, to.since(from))
}

// wantTold wants a lease to be known to be lost soon after its deadline, without a question.
func (r *reader) wantTold(x *hold, rec record, what string) {
	if late := r.late(max(x.deadline, x.free), rec.At); late > r.slack {
		r.violate(LateLoss, x.key, span{x.deadline, rec.At}, "%v: %s %v after the deadline", x, what, late)
	}
}

// wantReturn wants a call to return when its wait is over.
func (r *reader) wantReturn(rec record, what string, call instant, limit time.Duration) {
	if took := r.late(call, rec.At); took > limit+r.slack {
		r.violate(Stall, rec.Key, span{call, rec.At}, "%s, op %d: %s took %v, which is %v too long", r.p.name, rec.Op, what, took, took-limit)
	}
}

// unlockTime is how long an Unlock may take that the log begins at call. A process that is frozen right after call may begin
// the Unlock when its context has ended: then Unlock tries for lateUnlock.
func (r *reader) unlockTime(call instant) time.Duration {
	begins, ends := span{call, call.add(beginsWithin)}, call.add(unlockWithin)
	if slices.ContainsFunc(r.p.frozen, func(f span) bool { return f.overlaps(begins) && f.to >= ends }) {
		return lateUnlock
	}
	return unlockWithin
}

// sorted brings everything in order. After it the history is complete.
func (h *history) sorted() (all []*keyHistory) {
	for _, k := range h.keys {
		slices.SortFunc(k.holds, func(a, b *hold) int { return cmp.Compare(a.ret, b.ret) })
		all = append(all, k)
	}
	slices.SortFunc(all, func(a, b *keyHistory) int { return cmp.Compare(a.key, b.key) })
	return all
}

package soak

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// A history is what happened in an arena in a round, by key.
type history struct {
	maxTTL, slack time.Duration
	claims        Strategy
	quorum        bool // several nodes: contenders may refuse one another
	events        []event
	began         instant
	losses        spans            // of data, and with it of locks
	twice         spans            // commands arrived twice
	troubled      spans            // in which, and shortly after which, a free lock may go untaken
	full          spans            // a server was out of memory
	foreign       map[uint16]spans // by key: something else was there
	frozen        spans            // processes
	silent        spans            // wake-ups were lost
	longTroubles  bool             // waiters may lose patience with the store
	keys          map[uint16]*keyHistory
	stats         Stats
	violations    []Violation
	windowHolds   int // so many in a window at least
}

// keyHistory is what happened on one key.
type keyHistory struct {
	key   uint16
	holds []*hold   // by from
	tries []attempt // those that got nothing, by call
	last  []instant // when anything was heard of a hold or one before it
	teams bool      // it is locked by teams
}

// attempt is a Lock or TryLock.
type attempt struct {
	proc   *process
	flags  flags
	result result
	key    uint16
	op     uint32
	team   team
	ttl    time.Duration
	wait   time.Duration
	call   instant
	ret    instant
	// since: what was asked for may have been granted from then on: a lease of a
	// team may join an older hold.
	since instant
	// unknown: nobody knows whether it got the lock.
	unknown bool
}

// hold is a lease, from the grant to its end.
type hold struct {
	attempt  // ret is when the grant was returned
	token    int64
	first    instant // the deadline at first
	deadline instant // the last one known
	lost     instant // Lost was seen; 0: it was not
	killed   instant // the process died
	renews   []answer

	unlock   answer  // from the first call to the definite answer, if any
	unlocked bool    // there was a definite answer
	asked    instant // when Unlock was last called
	refused  instant // the resource refused its token
	inner    instant // when the re-entry under way was called
	closed   instant // its Locker was closed; 0: it was not
	limit    instant // when it is over by MaxHold or MaxRenewals; 0: never
	overdue  bool    // it was in use when its first deadline had passed, and nothing was wrong
}

// answer is what a call was answered: with result at to, or nothing (to is 0).
type answer struct {
	span
	result result
}

// end is when the holder had no reason any more to think that it holds.
func (h *hold) end(data spans) instant {
	end := h.deadline
	if h.unlock.from != 0 {
		end = min(end, h.unlock.from)
	}
	if h.killed != 0 {
		end = min(end, h.killed)
	}
	if h.closed != 0 {
		end = min(end, h.closed)
	}
	if h.lost != 0 && data.between(h.since, h.lost) {
		end = min(end, h.lost)
	}
	return end
}

// freed is when the key is free in the store at the latest, if nobody else takes it.
func (h *hold) freed() instant {
	if h.unlocked && h.unlock.result == resOK {
		return h.unlock.to
	}
	return h.over()
}

// over is when the key is free even if nobody gives it back: a last renewal may have
// been applied without an answer.
func (h *hold) over() instant {
	if h.proc.killed != 0 && h.killed != 0 {
		return h.killed.add(h.ttl)
	}
	return max(h.deadline, h.unlock.to, h.killed).add(h.ttl)
}

// spans are times of something.
type spans []span

func (l spans) between(from, to instant) bool {
	return slices.ContainsFunc(l, func(s span) bool { return s.overlaps(span{from, to}) })
}

// around reports whether s is within one of them.
func (l spans) around(s span) bool {
	return slices.ContainsFunc(l, func(o span) bool { return o.from <= s.from && s.to <= o.to })
}

func (h *history) violate(kind Kind, key uint16, around span, format string, args ...any) {
	h.stats.Found[kind]++
	if h.stats.Found[kind] > mostOfAKind {
		return
	}
	h.violations = append(h.violations, Violation{Kind: kind, Key: keyName(key), Text: fmt.Sprintf(format, args...), around: around})
}

// mostOfAKind is how many violations of a kind are described; all are counted.
const mostOfAKind = 5

func newHistory(cfg Config, s Strategy, events []event, began instant) *history {
	h := &history{
		maxTTL: cfg.maxTTL(), slack: cfg.Slack, claims: s, quorum: s.Nodes > 1, events: events, began: began,
		foreign:     make(map[uint16]spans),
		keys:        make(map[uint16]*keyHistory),
		stats:       newStats(s.Name),
		windowHolds: 100,
	}
	const patience = 15 * time.Second // package locker's
	h.longTroubles = cfg.Storm >= patience || 2*h.maxTTL >= patience
	for _, e := range events {
		h.stats.Faults[e.fault.Name]++
		if e.loses {
			h.losses = append(h.losses, e.span)
		}
		if e.fault.twice {
			h.twice = append(h.twice, e.span)
		}
		if e.fault.silences {
			h.silent = append(h.silent, e.span)
		}
		if e.fault.full {
			h.full = append(h.full, e.span)
		}
		if e.key != nil {
			h.foreign[*e.key] = append(h.foreign[*e.key], e.span)
		}
		if !e.fault.harmless {
			h.troubled = append(h.troubled, e.span)
		}
	}
	return h
}

func (h *history) at(key uint16) *keyHistory {
	k := h.keys[key]
	if k == nil {
		k = &keyHistory{key: key}
		h.keys[key] = k
	}
	return k
}

// nothingWrong reports that no fault can have kept commands in s from being answered,
// and p was not frozen; nor any other process, if p is nil.
func (h *history) nothingWrong(p *process, s span) bool { return h.nothingBut(nil, p, s) }

// nothingBut is nothingWrong but for what is known.
func (h *history) nothingBut(known spans, p *process, s span) bool {
	s.from = s.from.add(-h.maxTTL)
	for _, t := range h.troubled {
		if t.overlaps(s) && !slices.Contains(known, t) {
			return false
		}
	}
	if p != nil {
		return !spans(p.frozen).between(s.from, s.to)
	}
	return !h.frozen.between(s.from, s.to)
}

// checkRenewals wants most leases that were to be renewed to have been.
func (h *history) checkRenewals() {
	if s := h.stats; s.Ended > few && s.Ended > s.Overdue/4 {
		h.sumUp(FalseLoss, "of %d leases that were in use for longer than their TTL while nothing was wrong %d were not renewed", s.Overdue, s.Ended)
	}
}

// sumUp notes a violation that is about no single key.
func (h *history) sumUp(kind Kind, format string, args ...any) {
	h.stats.Found[kind]++
	h.violations = append(h.violations, Violation{Kind: kind, Text: fmt.Sprintf(format, args...)})
}

// sort brings everything in order. After it the history is complete.
func (h *history) sort() []*keyHistory {
	slices.SortFunc(h.losses, func(a, b span) int { return cmp.Compare(a.from, b.from) })
	var all []*keyHistory
	for _, k := range h.keys {
		slices.SortFunc(k.holds, func(a, b *hold) int { return cmp.Compare(a.ret, b.ret) })
		slices.SortFunc(k.tries, func(a, b attempt) int { return cmp.Compare(a.call, b.call) })
		all = append(all, k)
	}
	slices.SortFunc(all, func(a, b *keyHistory) int { return cmp.Compare(a.key, b.key) })
	return all
}

func (h *hold) String() string {
	return fmt.Sprintf("%s, op %d, with token %d", h.proc.name, h.op, h.token)
}

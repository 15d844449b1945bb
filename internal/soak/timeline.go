package soak

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

const (
	timelineBefore = 1500 * time.Millisecond
	timelineAfter  = 300 * time.Millisecond
	timelineMost   = 120 // lines
)

type line struct {
	at   instant
	text string
}

// timeline is what happened around a violation, in words: on its key, and which
// faults.
func (a *arena) timeline(h *history, v Violation) string {
	began := h.began
	around := span{v.around.from.add(-timelineBefore), v.around.to.add(timelineAfter)}
	var lines []line
	say := func(at instant, format string, args ...any) {
		lines = append(lines, line{at, fmt.Sprintf(format, args...)})
	}
	type entry struct {
		p *process
		r record
	}
	tell := func(e entry) {
		say(e.r.at, "%-4s caller %-2d op %-6d %s", e.p.name, e.r.caller, e.r.op, e.r.words(began))
	}
	var all []entry
	for _, p := range a.all {
		// An error has been seen before, when the log was checked.
		_ = readLog(p.spec.Log, func(r record) {
			if keyName(r.key) == v.Key && r.at <= around.to {
				all = append(all, entry{p, r})
			}
		})
	}
	slices.SortStableFunc(all, func(a, b entry) int { return cmp.Compare(a.r.at, b.r.at) })
	for _, e := range all {
		if e.r.at >= around.from {
			tell(e)
		}
	}
	if extra := len(lines) - timelineMost; extra > 0 {
		// The lines near the violation matter.
		i, _ := slices.BinarySearchFunc(lines, v.around.to, func(l line, t instant) int { return cmp.Compare(l.at, t) })
		first := max(0, min(i-timelineMost*3/4, extra))
		lines = lines[first : first+timelineMost]
		around.from = lines[0].at
	}
	for _, e := range h.events {
		if e.overlaps(around) {
			say(max(e.from, around.from), "---- %v, from %s until %s", e, clock(e.from, began), clock(e.to, began))
		}
	}
	// The last holder, however long ago.
	last := entry{}
	for _, e := range all {
		if e.r.kind == recGranted && e.r.at < around.from {
			last = e
		}
	}
	for _, e := range all {
		if e.p == last.p && e.r.op == last.r.op && e.r.at < around.from {
			tell(e)
		}
	}
	slices.SortStableFunc(lines, func(a, b line) int { return cmp.Compare(a.at, b.at) })
	var b strings.Builder
	for _, l := range lines {
		fmt.Fprintf(&b, "%s  %s\n", clock(l.at, began), l.text)
	}
	return b.String()
}

// clock is t as seconds since the beginning of the round.
func clock(t, began instant) string { return fmt.Sprintf("%11.6f", t.since(began).Seconds()) }

// words is a record as a person reads it.
func (r record) words(began instant) string {
	s := r.kind.String()
	if r.flags&flagInner != 0 {
		s += " (inner)"
	}
	switch r.kind {
	case recLock:
		if r.flags&flagTry != 0 {
			s = "TryLock"
		}
		return fmt.Sprintf("%s, TTL %d ms, wait %d ms", s, r.ttl, r.wait)
	case recGranted:
		return fmt.Sprintf("%s token %d, deadline %s", s, r.token, clock(r.deadline, began))
	case recRefused, recUnlocked, recRenewed:
		return fmt.Sprintf("%s: %v", s, r.result)
	case recAsk:
		answer := "lost"
		if r.flags&flagYes != 0 {
			answer = "held"
		}
		return fmt.Sprintf("%s: %s, deadline %s", s, answer, clock(r.deadline, began))
	case recWrite:
		answer := "refused"
		if r.flags&flagYes != 0 {
			answer = "accepted"
		}
		return fmt.Sprintf("%s with token %d: %s at %s", s, r.token, answer, clock(r.deadline, began))
	case recUnlock, recLost:
		if r.deadline == 0 {
			return s
		}
		return fmt.Sprintf("%s, deadline %s", s, clock(r.deadline, began))
	}
	return s
}

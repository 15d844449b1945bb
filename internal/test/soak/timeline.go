package soak

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// line is one of a timeline.
type line struct {
	at   instant
	text string
}

// timeline returns the events around a violation, in words: on its key, and which faults.
func (a *arena) timeline(strategy uint8, v Violation, began instant) string {
	const before, after, most = 1500 * time.Millisecond, 300 * time.Millisecond, 120
	around := span{v.around.from.add(-before), v.around.to.add(after)}
	var near, lines []line
	for _, p := range a.all {
		// An error was seen before, when the log was checked.
		_ = readLog(p.spec.Log, func(r record) {
			if r.Strategy != strategy || r.Key != v.key || r.At > around.to {
				return
			}
			l := line{r.At, fmt.Sprintf("%-4s caller %-2d op %-6d %s", p.name, r.Caller, r.Op, r.words(began))}
			// Records of the violation's own operations are shown however old they are.
			if strings.Contains(v.Text, fmt.Sprintf("%s, op %d", p.name, r.Op)) {
				lines = append(lines, l)
			} else if r.At >= around.from {
				near = append(near, l)
			}
		})
	}
	inOrder := func(a, b line) int { return cmp.Compare(a.at, b.at) }
	slices.SortStableFunc(near, inOrder)
	lines = append(lines, near[max(0, len(near)-most):]...)
	for _, e := range a.events {
		if e.overlaps(around) {
			lines = append(lines, line{e.from, fmt.Sprintf("---- %s on %s until %s", e.fault.Name, e.on, clock(e.to, began))})
		}
	}
	slices.SortStableFunc(lines, inOrder)
	var b strings.Builder
	for _, l := range lines {
		fmt.Fprintf(&b, "%s  %s\n", clock(l.at, began), l.text)
	}
	return b.String()
}

// clock is t as seconds since the beginning of the round.
func clock(t, began instant) string { return fmt.Sprintf("%11.6f", t.since(began).Seconds()) }

// words returns a record as a person reads it.
func (r record) words(began instant) string {
	s := r.Kind.String()
	for f, text := range map[flags]string{flagTry: ", TryLock", flagInner: ", inner", flagYes: ": yes"} {
		if r.Flags&f != 0 {
			s += text
		}
	}
	switch r.Kind {
	case recLock:
		s += fmt.Sprintf(", TTL %d ms, wait %d ms", r.TTL, r.Wait)
	case recRefused, recUnlocked, recRenewed:
		s += fmt.Sprintf(": %v", r.Result)
	}
	if r.Token != 0 {
		s += fmt.Sprintf(", token %d", r.Token)
	}
	if r.Deadline != 0 {
		s += ", deadline " + clock(r.Deadline, began)
	}
	return s
}

package soak

import (
	"cmp"
	"slices"
	"time"
)

// span is a time between two instants, both included.
type span struct{ from, to instant }

func (s span) overlaps(o span) bool  { return s.from <= o.to && o.from <= s.to }
func (s span) length() time.Duration { return s.to.since(s.from) }
func (s span) and(o span) span       { return span{max(s.from, o.from), min(s.to, o.to)} }
func byBegin(a, b span) int          { return cmp.Compare(a.from, b.from) }

// spans are times of something.
type spans []span

func (l spans) overlap(s span) bool { return slices.ContainsFunc(l, s.overlaps) }

// merged joins those that touch one another, in order.
func (l spans) merged() (joined spans) {
	l = slices.Clone(l)
	slices.SortFunc(l, byBegin)
	for _, s := range l {
		if n := len(joined); n > 0 && s.from <= joined[n-1].to {
			joined[n-1].to = max(joined[n-1].to, s.to)
		} else {
			joined = append(joined, s)
		}
	}
	return joined
}

// gaps returns the times between them.
func (l spans) gaps() (between spans) {
	joined := l.merged()
	for i := range len(joined) - 1 {
		between = append(between, span{joined[i].to, joined[i+1].from})
	}
	return between
}

package simulation

import (
	"testing"
	"time"
)

// TestCheckedPairs: two holds of a key, and whether a promise is broken.
func TestCheckedPairs(t *testing.T) {
	const s = time.Second
	type held struct {
		kind           kind
		owner          string
		call, ret, end time.Duration
		deadline       time.Duration // when Lock returned
		token          int64
	}
	loss := []broken{{"a", 2 * s, 2 * s}}
	for name, c := range map[string]struct {
		a, b     held
		breaks   []broken
		unfenced bool
		wrong    bool
	}{
		"one after the other":       {a: held{ret: 10, end: 20, deadline: s, token: 1}, b: held{ret: 30, end: 40, deadline: s, token: 2}},
		"the token repeats":         {a: held{ret: 10, end: 20, deadline: s, token: 1}, b: held{ret: 30, end: 40, deadline: s, token: 1}, wrong: true},
		"one beside the other":      {a: held{ret: 10, end: 20, deadline: s, token: 1}, b: held{ret: 15, end: 40, deadline: s, token: 2}, wrong: true},
		"at one instant":            {a: held{ret: 10, end: 20, deadline: s, token: 1}, b: held{ret: 10, end: 20, deadline: s, token: 2}, wrong: true},
		"at the instant of its end": {a: held{ret: 10, end: 10, deadline: s, token: 1}, b: held{ret: 10, end: 20, deadline: s, token: 2}},
		"ended at once":             {a: held{ret: 10, end: 20, deadline: s, token: 1}, b: held{ret: 10, end: 10, deadline: s, token: 2}},
		"readers at one instant": {
			a: held{kind: reader, ret: 10, end: 20, deadline: s, token: 1}, b: held{kind: reader, ret: 10, end: 20, deadline: s, token: 2},
		},

		"lost between the grants":         {a: held{ret: 1500 * time.Millisecond, end: 2500 * time.Millisecond, deadline: 2500 * time.Millisecond, token: 1}, b: held{ret: 2100 * time.Millisecond, end: 3 * s, deadline: 3 * s, token: 2}, breaks: loss},
		"lost while it was waited for":    {a: held{ret: 8 * s, end: 9 * s, deadline: 9 * s, token: 1}, b: held{call: 7 * s, ret: 8500 * time.Millisecond, end: 9 * s, deadline: 9 * s, token: 2}, breaks: loss, wrong: true},
		"shared, lost while waited for":   {a: held{owner: "ann", ret: 8 * s, end: 9 * s, deadline: 9 * s, token: 1}, b: held{call: 7 * s, ret: 8500 * time.Millisecond, end: 9 * s, deadline: 9 * s, token: 2}, breaks: loss, wrong: true},
		"unfenced, lost while waited for": {a: held{ret: 3500 * time.Millisecond, end: 4 * s, deadline: 4500 * time.Millisecond}, b: held{call: 3600 * time.Millisecond, ret: 3700 * time.Millisecond, end: 4 * s, deadline: 4500 * time.Millisecond}, breaks: loss, unfenced: true, wrong: true},
		"a smaller token after a loss":    {a: held{call: 7 * s, ret: 8 * s, end: 8100 * time.Millisecond, deadline: 9 * s, token: 2}, b: held{ret: 8200 * time.Millisecond, end: 9 * s, deadline: 9100 * time.Millisecond, token: 1}, breaks: loss, wrong: true},
		"granted before, returned after":  {a: held{call: 2100 * time.Millisecond, ret: 2200 * time.Millisecond, end: 2300 * time.Millisecond, deadline: 3 * s, token: 2}, b: held{ret: 2400 * time.Millisecond, end: 2500 * time.Millisecond, deadline: 2900 * time.Millisecond, token: 1}, breaks: loss},
	} {
		w := &world{began: time.Now(), fenced: !c.unfenced, ttls: []time.Duration{s}, breaks: c.breaks}
		for _, h := range []held{c.a, c.b} {
			o := &op{c: &caller{w: w, p: &process{w: w}}, kind: h.kind, key: "a", owner: h.owner, ttl: s, call: h.call, ret: h.ret}
			x := &hold{op: o, token: h.token, end: h.end}
			x.since = w.since(x, h.deadline)
			w.holds = append(w.holds, x)
		}
		w.check()
		if got := w.result.Violations; (len(got) > 0) != c.wrong {
			t.Errorf("%s: %v, want a violation: %t", name, got, c.wrong)
		}
	}
}

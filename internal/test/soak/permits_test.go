package soak

import (
	"maps"
	"slices"
	"testing"
	"time"
)

// taken is a lease on n permits from its grant to its Unlock.
func taken(proc, op, n, from, to, token int) []step {
	return slices.Concat(
		rec(proc, from-1, op, recLock, record{Permits: uint32(n)}),
		rec(proc, from, op, recGranted, record{Permits: uint32(n), Token: int64(token), Deadline: ms(from + 297)}),
		unlock(proc, to, op),
	)
}

// TestPermitsAreChecked: what happened on a key with 4 permits, and which violation that is.
func TestPermitsAreChecked(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		script    [][]step
		events    []event
		want      Kind
		regranted int
	}{
		"as many as there are":       {script: [][]step{taken(0, 1, 3, 1, 50, 10), taken(1, 2, 1, 7, 60, 11), taken(1, 3, 3, 51, 60, 12)}},
		"one too many":               {want: Overlap, script: [][]step{taken(0, 1, 3, 1, 50, 10), taken(1, 2, 1, 7, 60, 11), taken(1, 3, 1, 49, 60, 12)}},
		"one too many, by weight":    {want: Overlap, script: [][]step{taken(0, 1, 3, 1, 50, 10), taken(1, 2, 2, 7, 60, 11)}},
		"a token of two":             {want: TokenOrder, script: [][]step{taken(0, 1, 1, 1, 50, 10), taken(1, 2, 1, 60, 70, 10)}},
		"a smaller token":            {script: [][]step{taken(0, 1, 1, 1, 50, 10), taken(1, 2, 1, 60, 70, 9)}},
		"after a loss":               {regranted: 1, events: lost(lossSome, 5, 6), script: [][]step{taken(0, 1, 4, 1, 50, 10), taken(1, 2, 1, 200, 210, 11), taken(1, 3, 4, 8, 40, 12)}},
		"too many after a loss":      {want: Overlap, events: lost(lossSome, 5, 6), script: [][]step{taken(0, 1, 4, 1, 50, 10), taken(1, 2, 4, 1300, 1310, 11), taken(1, 3, 1, 1301, 1340, 12)}},
		"free, and nobody is let in": {want: Stall, script: [][]step{taken(0, 1, 4, 1, 5, 10), waited(1, 2, 2, 2002), waited(1, 3, 1900, 3900)}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := &arena{maxTTL: 300 * time.Millisecond, cfg: Config{Slack: 2 * time.Second}, events: c.events}
			h := newHistory(a, Strategy{Permits: 4})
			for _, p := range processes(t, slices.Concat(c.script...)) {
				if err := h.read(p, 0); err != nil {
					t.Fatal(err)
				}
			}
			h.check()
			checkReplay(t, h, c.want)
			var want []Kind
			if c.want != "" {
				want = []Kind{c.want}
			}
			if got := slices.Collect(maps.Keys(h.found)); !slices.Equal(got, want) {
				t.Errorf("found %v, want %v: %v", got, want, h.violations)
			}
			if (h.count[Regranted] > 0) != (c.regranted > 0) {
				t.Errorf("%d grants beside a holder that lost its permits, want %d", h.count[Regranted], c.regranted)
			}
		})
	}
}

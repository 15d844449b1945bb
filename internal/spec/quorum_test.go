package spec

import "testing"

const enough = 30_000 // states of a model that has more

// TestQuorum shows both results: as long as clocks go on, at most one client holds, and tokens grow. Where one has
// stood still two hold, and the resource that compares tokens is safe all the same.
func TestQuorum(t *testing.T) {
	tokens := []string{NoStale, TokensGrow, TokensVary}
	for name, c := range map[string]struct {
		a        Assumptions
		promises []string
		broken   string
	}{
		"clocks go on":                             {Assumptions{}, append(tokens, OneHolds), ""},
		"a clock stands still: tokens":             {Assumptions{Pauses: 1}, tokens, ""},
		"a clock stands still: tokens, to the end": {Assumptions{Pauses: 2, Lossless: true}, tokens, ""},
		"a clock stands still: exclusion":          {Assumptions{Pauses: 1, Lossless: true}, []string{OneHolds}, OneHolds},
		"a clock stands still, nobody compares":    {Assumptions{Pauses: 1, Lossless: true, Unchecked: true}, []string{NoStale}, NoStale},

		"half of the nodes is taken for a majority": {Assumptions{HalfIsEnough: true}, []string{OneHolds}, OneHolds},
		"no second round":                 {Assumptions{NoSecondRound: true}, tokens, TokensGrow},
		"a lease counts from the answers": {Assumptions{FromReply: true}, []string{OneHolds}, OneHolds},
		"tokens that no node has given":   {Assumptions{PrivateCounter: true}, tokens, TokensVary},
	} {
		t.Run(name, func(t *testing.T) {
			m := QuorumModel(c.a, c.promises...)
			if m.States = enough; c.broken != "" {
				m.States *= 30
			}
			r := m.Explore()
			if r.Broken != c.broken {
				t.Fatalf("broken: %q, want %q\n%v", r.Broken, c.broken, r)
			}
			t.Logf("%d states, %d steps deep, complete %t\n%v", r.States, r.Depth, r.Complete, r)
		})
	}
}

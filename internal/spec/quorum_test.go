package spec

import (
	"flag"
	"testing"
)

var complete = flag.Bool("complete", false, "go through all states of the models of redlock's token, which takes a minute and 1.5 GB")

const enough = 30_000 // states of a model that has more, unless -complete

// TestQuorum shows both results: as long as clocks go on, at most one client holds, and tokens grow. Where one has
// stood still two hold, and the resource that compares tokens is safe all the same.
func TestQuorum(t *testing.T) {
	tokens := []string{NoStale, TokensGrow, TokensVary}
	for name, c := range map[string]struct {
		a        Assumptions
		promises []string
		broken   string
		all      bool // the model is small: all states are visited
		page     string
	}{
		"clocks go on":                             {Assumptions{}, append(tokens, OneHolds), "", *complete, "clocks go on: all %s states"},
		"a clock stands still: tokens":             {Assumptions{Pauses: 1}, tokens, "", *complete, "once: all %s states"},
		"a clock stands still: tokens, to the end": {Assumptions{Pauses: 2, Lossless: true}, tokens, "", true, "and nothing is lost: all %s states"},
		"a clock stands still: exclusion":          {Assumptions{Pauses: 1, Lossless: true}, []string{OneHolds}, OneHolds, false, "in %s steps: A"},
		"a clock stands still, nobody compares":    {Assumptions{Pauses: 1, Lossless: true, Unchecked: true}, []string{NoStale}, NoStale, false, ""},

		"half of the nodes is taken for a majority": {Assumptions{HalfIsEnough: true}, []string{OneHolds}, OneHolds, false, ""},
		"no second round":                 {Assumptions{NoSecondRound: true}, tokens, TokensGrow, false, ""},
		"a lease counts from the answers": {Assumptions{FromReply: true}, []string{OneHolds}, OneHolds, false, ""},
		"tokens that no node has given":   {Assumptions{PrivateCounter: true}, tokens, TokensVary, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			m := QuorumModel(c.a, c.promises...)
			switch m.States = enough; {
			case c.all:
				m.States = 10_000_000
			case c.broken != "":
				m.States *= 30
			}
			r := m.Explore()
			if r.Broken != c.broken || c.all && !r.Complete {
				t.Fatalf("broken: %q, want %q; complete: %t, want %t\n%v", r.Broken, c.broken, r.Complete, c.all, r)
			}
			switch {
			case c.broken != "" && c.page != "":
				wantOnPage(t, "simulation.md", c.page, len(r.History))
			case c.all:
				wantOnPage(t, "simulation.md", c.page, r.States)
				if c.a.Pauses > 0 {
					wantOnPage(t, "verification.md", "in all %s states with", r.States)
				}
			case c.page != "":
				wantOnPage(t, "simulation.md", "`make test` visits the first %s states", enough)
				wantOnPage(t, "verification.md", "`make test` visits the first %s of the larger model", enough)
			}
			t.Logf("%d states, %d steps deep, complete %t\n%v", r.States, r.Depth, r.Complete, r)
		})
	}
}

package explore

import (
	"fmt"
	"strings"
	"testing"
)

// jugs are two jugs of 3 and 5 litres.
type jugs struct{ small, big int }

func pouring(kept func(jugs) bool) Model[jugs] {
	return Model[jugs]{
		Steps: func(j jugs, take func(string, jugs)) {
			take("fill the small one", jugs{3, j.big})
			take("fill the big one", jugs{j.small, 5})
			take("empty the small one", jugs{0, j.big})
			take("empty the big one", jugs{j.small, 0})
			n := min(j.small, 5-j.big)
			take("pour into the big one", jugs{j.small - n, j.big + n})
			n = min(j.big, 3-j.small)
			take("pour into the small one", jugs{j.small + n, j.big - n})
		},
		Promises: []Promise[jugs]{{"it is kept", kept}},
	}
}

func TestFindsTheShortestHistory(t *testing.T) {
	r := pouring(func(j jugs) bool { return j.big != 4 }).Explore()
	if r.Broken != "it is kept" || len(r.History) != 6 || r.History[5].State.big != 4 {
		t.Errorf("%v, want six steps to 4 litres", r)
	}
	if s := r.String(); strings.Count(s, "\n") != 7 || !strings.Contains(s, "fill the big one") {
		t.Errorf("it is shown as\n%s", s)
	}
}

func TestVisitsAllStates(t *testing.T) {
	r := pouring(func(j jugs) bool { return j.small+j.big <= 8 }).Explore()
	if r.Broken != "" || !r.Complete || r.States != 16 {
		t.Errorf("%+v, want the 16 states of two jugs and nothing broken", r)
	}
}

func TestStopsAtTheLimit(t *testing.T) {
	m := Model[int]{Steps: func(n int, take func(string, int)) { take(fmt.Sprint(n), n+1) }, States: 100}
	if r := m.Explore(); r.Complete || r.States != 100 {
		t.Errorf("%+v, want 100 states, and that there are more", r)
	}
	if r := (Model[int]{Promises: []Promise[int]{{"never", func(int) bool { return false }}}}).Explore(); r.Broken != "never" {
		t.Errorf("%+v, want the first state to break it", r)
	}
}

package redlock_test

import (
	"flag"
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var explore = flag.Duration("explore", 0, "how long to go on exploring the token protocol, beyond what each run does")

const (
	searchStates = 70_000 // of each setting
	walkCount    = 8_000
	walkLength   = 80 // steps
)

// Where a clock is set, the second round counts only nodes that were heard in the first. The
// driver counts all that confirm: there the second of the known histories is its, too.
var (
	network  = setting{name: "commands are lost, late, or repeated", claims: 2, clocks: [3]int32{900, 1, 0}, repeats: true, unheard: true}
	dataLost = setting{name: "a node loses its data, clocks lead by less than it is down", claims: 2, clocks: [3]int32{150, 0, 0}, losses: 1, repeats: true, unheard: true}
	clockSet = setting{name: "a clock is set ahead and back by a TTL", claims: 2, clocks: [3]int32{0, 1, 0}, jumps: []int8{ttl, -ttl}}
	cleanUp  = setting{name: "keys are cleaned up", claims: 2, leftover: true, unheard: true}

	threeClaims = setting{name: "three claims, repeated commands, data lost", claims: 3, clocks: [3]int32{150, 1, 0}, losses: 2, repeats: true, unheard: true}
	threeClocks = setting{name: "three claims, a clock set, data lost", claims: 3, clocks: [3]int32{50, 1, 0}, jumps: []int8{1, -1}, losses: 2}
)

// key tells states apart. It is the same for states that differ in the names of nodes, or in what the setting
// does not depend on.
func (s *setting) key(w world) uint64 {
	var nodes [len(w.nodes)]uint64
	for i := range w.nodes {
		n := &w.nodes[i]
		for c := range n.links {
			l := &n.links[c]
			if s.leftover {
				continue
			}
			l.placed, l.late = false, 0
			if w.claims[c].phase == released {
				l.turn = nothing
			}
		}
		nodes[i] = maphash.Comparable(seed, struct {
			node
			jumps bool
		}{*n, len(s.jumps) > 0 && i == 0})
	}
	slices.Sort(nodes[:])
	return maphash.Comparable(seed, struct {
		nodes        [len(w.nodes)]uint64
		claims       [len(w.claims)]claim
		jumped, lost uint8
	}{nodes, w.claims, w.jumped, w.lost})
}

var seed = maphash.MakeSeed()

// found is the result of an exploration.
type found struct {
	violation     string // "": none
	history       []step
	states, depth int
	walks         int
}

// search visits the states breadth first, so that the first violation it meets has the
// shortest history.
func (s *setting) search(states int) (f found) {
	type origin struct {
		from int32
		step step
	}
	type reached struct {
		w  world
		at int32 // in origins
	}
	origins := []origin{{from: -1}}
	seen := make(map[uint64]struct{}, states)
	level := []reached{{s.begin(), 0}}
	var todo []step
	for ; len(level) > 0; f.depth++ {
		var next []reached
		for _, r := range level {
			todo = s.steps(&r.w, todo[:0])
			for _, st := range todo {
				w := r.w
				if f.violation = s.take(&w, st); f.violation != "" {
					f.history = []step{st}
					for o := origins[r.at]; o.from >= 0; o = origins[o.from] {
						f.history = append(f.history, o.step)
					}
					slices.Reverse(f.history)
					f.states = len(seen)
					return f
				}
				k := s.key(w)
				if _, ok := seen[k]; ok {
					continue
				}
				seen[k] = struct{}{}
				origins = append(origins, origin{r.at, st})
				next = append(next, reached{w, int32(len(origins) - 1)})
			}
			if len(seen) >= states {
				f.states = len(seen)
				return f
			}
		}
		level = next
	}
	f.states = len(seen)
	return f
}

// walk goes where chance takes it, until all claims are released.
func (s *setting) walk(r *rand.Rand) (f found) {
	w := s.begin()
	var todo []step
	for range walkLength {
		if !slices.ContainsFunc(w.claims[:s.claims], func(c claim) bool { return c.phase != released }) {
			break
		}
		todo = s.steps(&w, todo[:0])
		st := pick(r, todo)
		f.history = append(f.history, st)
		if f.violation = s.take(&w, st); f.violation != "" {
			f.history = s.shorten(f.history, f.violation)
			return f
		}
	}
	return found{}
}

// pick takes each kind of step as often as any other: arrivals are many.
func pick(r *rand.Rand, todo []step) (st step) {
	for n := 0; n == 0; {
		kind := what(r.IntN(int(loses) + 1))
		for _, other := range todo {
			if other.what != kind {
				continue
			}
			if n++; r.IntN(n) == 0 {
				st = other
			}
		}
	}
	return st
}

// walks goes on for at least so many walks, and so long.
func (s *setting) walks(seed uint64, count int, long time.Duration) (f found) {
	r, end := rand.New(rand.NewPCG(seed, seed)), time.Now().Add(long)
	for n := 1; n <= count || time.Now().Before(end); n++ {
		f = s.walk(r)
		f.walks = n
		if f.violation != "" {
			break
		}
	}
	return f
}

// again takes those steps of a history that can be taken.
func (s *setting) again(history []step) (f found) {
	w := s.begin()
	for _, st := range history {
		if !slices.Contains(s.steps(&w, nil), st) {
			continue
		}
		f.history = append(f.history, st)
		if f.violation = s.take(&w, st); f.violation != "" {
			break
		}
	}
	return f
}

// shorten leaves out steps that the violation does not need.
func (s *setting) shorten(history []step, violation string) []step {
	for i := 0; i < len(history); i++ {
		f := s.again(slices.Delete(slices.Clone(history), i, i+1))
		if f.violation == violation {
			history, i = f.history, -1
		}
	}
	return history
}

// tell writes a history down, with what the nodes have after each step: the holder and how
// long its key stays, the counter and how long it is kept.
func (s *setting) tell(history []step) string {
	var b strings.Builder
	w := s.begin()
	for i, st := range history {
		s.take(&w, st)
		fmt.Fprintf(&b, "\n%2d. %-45s%v", i+1, st, &w)
	}
	return b.String()
}

// say logs what was explored.
func (s *setting) say(t *testing.T, f found) {
	t.Helper()
	switch {
	case f.violation != "":
		t.Logf("%s, after %d states, %d walks, in %d steps:%s", f.violation, f.states, f.walks, len(f.history), s.tell(f.history))
	case f.walks > 0:
		t.Logf("%d walks of up to %d steps", f.walks, walkLength)
	default:
		t.Logf("%d states, among them all that %d steps lead to", f.states, f.depth)
	}
}

func TestTokenProtocol(t *testing.T) {
	states, seed := searchStates, uint64(1)
	if *explore > 0 {
		states, seed = 1_000_000, rand.Uint64()
		t.Logf("the walks' seed is %d", seed)
	}
	for _, s := range []setting{network, dataLost, clockSet, cleanUp} {
		t.Run(s.name, func(t *testing.T) {
			f := s.search(states)
			s.say(t, f)
			require.Empty(t, f.violation)
		})
	}
	for _, s := range []setting{threeClaims, threeClocks} {
		t.Run(s.name, func(t *testing.T) {
			f := s.walks(seed, walkCount, *explore/2)
			s.say(t, f)
			require.Empty(t, f.violation)
		})
	}
}

// An exploration that finds nothing says little, unless it finds mistakes when there are some.
func TestExplorerFindsMistakes(t *testing.T) {
	for _, c := range []struct {
		name string
		in   setting
		mistakes
		want string
	}{
		{"no second round", network, mistakes{noSecondRound: true}, goesBack},
		{"a counter ahead of the clock is kept for the bare retention", network, mistakes{bareRetention: true}, goesBack},
		{"a token counts as written where the claim is gone", network, mistakes{goneConfirms: true}, goesBack},
		{"a token counts as written where a node only answers", network, mistakes{anyConfirms: true}, goesBack},
		{"a join after the release", cleanUp, mistakes{joinsReleased: true}, leftBehind},
		{"one release after an acquire without an answer", cleanUp, mistakes{releasesOnce: true}, leftBehind},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := c.in
			s.mistakes = c.mistakes
			f := s.search(searchStates)
			s.say(t, f)
			require.Equal(t, c.want, f.violation)
		})
	}
}

// The limits that docs/decisions/0008 names are in the model, too: each assumption is needed.
func TestExplorerFindsLimits(t *testing.T) {
	t.Run("data lost while a clock leads by more than the node is down", func(t *testing.T) {
		s := dataLost // where it is found to be sound if clocks lead by less
		s.clocks[0] = 900
		f := s.search(searchStates)
		s.say(t, f)
		require.Equal(t, goesBack, f.violation)
	})
	t.Run("locks forgotten by a clock set ahead", func(t *testing.T) {
		s := clockSet
		s.strict = true
		f := s.search(searchStates)
		s.say(t, f)
		require.Equal(t, twoHold, f.violation)
	})
	for _, c := range known {
		t.Run(c.name, func(t *testing.T) {
			f := c.in.again(c.history)
			c.in.say(t, f)
			require.Equal(t, c.want, f.violation)
			require.Equal(t, c.history, f.history)
			f = c.without.again(c.history)
			require.Empty(t, f.violation)
		})
	}
}

// known are histories that take longer to find. In all of them a clock that is set
// ahead makes #1 forget the key of A while A's attempt is under way.
var known = []struct {
	name    string
	in      setting
	without setting // what the history needs
	want    string
	history []step
}{
	{
		name: "a token that goes back", want: goesBack,
		in:      setting{claims: 2, jumps: []int8{ttl}, strict: true},
		without: setting{claims: 2, jumps: []int8{ttl}},
		history: []step{
			{what: begins, nodes: 0b001},
			{what: jumps, ticks: ttl},
			{what: begins, claim: 1, nodes: 0b011},
			{what: proceeds, claim: 1, nodes: 0b011, goesOn: true},
			{what: ends, claim: 1},
			{what: arrives, command: acquire, nodes: 0b100, answered: true, goesOn: true},
		},
	},
	{
		// #3 confirms A's token, but what it has proposed A has not heard.
		name: "the same token twice, confirmed by a node that was not heard before", want: sameToken,
		in:      setting{claims: 2, clocks: [3]int32{0, 200, 0}, jumps: []int8{ttl}, unheard: true},
		without: setting{claims: 2, clocks: [3]int32{0, 200, 0}, jumps: []int8{ttl}},
		history: forgotten(0b100, 0b110),
	},
	{
		// #1 confirms A's token, after A's acquire has arrived there again.
		name: "the same token twice, after a command that arrived twice", want: sameToken,
		in:      setting{claims: 2, clocks: [3]int32{0, 200, 0}, jumps: []int8{ttl}, repeats: true},
		without: setting{claims: 2, clocks: [3]int32{0, 200, 0}, jumps: []int8{ttl}},
		history: forgotten(0b001, 0b011),
	},
}

// forgotten is a history in which #1 forgets A's key; B has it on two nodes and frees one,
// which A's acquire reaches then; and A's token is confirmed by two nodes.
func forgotten(freed, confirm nodeSet) []step {
	return []step{
		{what: begins, nodes: 0b011},
		{what: jumps, ticks: ttl},
		{what: begins, claim: 1, nodes: 0b101},
		{what: proceeds, claim: 1, nodes: 0b101, goesOn: true},
		{what: ends, claim: 1, nodes: freed},
		{what: arrives, command: acquire, nodes: freed},
		{what: proceeds, nodes: confirm, goesOn: true},
	}
}

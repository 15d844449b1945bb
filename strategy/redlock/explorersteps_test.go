package redlock_test

import (
	"fmt"
	"math/bits"
)

// setting limits the steps of an exploration.
type setting struct {
	name     string
	claims   int
	clocks   [3]int32 // how far they are ahead, in µs
	jumps    []int8   // by which the first node's clock may be set ahead or back, once each, in ticks
	losses   uint8    // how many times a node may lose its data
	repeats  bool     // a command may arrive again and again
	unheard  bool     // the second round goes to nodes that have not answered the first, too
	strict   bool     // the promises are to hold for robbed claims, too
	leftover bool     // a key must not stay where its caller believes it gone; excludes repeats
	mistakes
}

// step is one thing that happens. A round of commands to all nodes arrives at some of
// them at once, which is answered; at the others each may arrive later, or never.
type step struct {
	what     what
	claim    int8
	nodes    nodeSet
	goesOn   bool    // the caller has heard the answers, and acts on a majority at once
	command  command // of sends and arrives
	answered bool    // of arrives
	ticks    int8
}

type what uint8

const (
	begins   what = iota // an attempt
	proceeds             // from a majority of answers
	renews
	ends    // the attempt or the hold
	sends   // a join, or a release again
	arrives // a command of before at a node
	passes
	jumps
	loses
)

type nodeSet uint8

func (ns nodeSet) has(n int) bool { return ns&(1<<n) != 0 }

func (ns nodeSet) String() (s string) {
	for n := range 3 {
		if ns.has(n) {
			s += fmt.Sprintf(" #%d", n+1)
		}
	}
	return s
}

func (st step) String() string {
	s := string(rune('A' + st.claim))
	commands := [...]string{"", "acquire", "confirm", "renew", "join", "release"}
	switch st.what {
	case begins, proceeds, renews, ends:
		s += [...]string{" begins", " proceeds", " renews", " ends"}[st.what]
		if st.nodes != 0 {
			s += "," + st.nodes.String() + " answers"
		}
	case sends:
		s += " sends a " + commands[st.command] + " to" + st.nodes.String()
	case arrives:
		s += "'s " + commands[st.command] + " arrives at" + st.nodes.String()
		if st.answered {
			s += ", answered"
		}
	case passes:
		return fmt.Sprintf("%d ticks pass", st.ticks)
	case jumps:
		return fmt.Sprintf("the clock of #1 is set by %+d ticks", st.ticks)
	case loses:
		return st.nodes.String()[1:] + " loses its data"
	}
	if st.goesOn {
		s += ", goes on"
	}
	return s
}

func (s *setting) begin() (w world) {
	for i := range w.nodes {
		w.nodes[i].clock, w.nodes[i].holder = s.clocks[i], free
	}
	return w
}

// steps appends what may happen next.
func (s *setting) steps(w *world, out []step) []step {
	up := nodeSet(0)
	for n := range w.nodes {
		if w.nodes[n].away == 0 {
			up |= 1 << n
		}
	}
	for c := range int8(s.claims) {
		out = s.stepsOf(w, c, up, out)
		for n := range w.nodes {
			out = s.stepsBetween(w, c, n, out)
		}
	}
	for i, d := range s.jumps {
		n := &w.nodes[0]
		if w.jumped&(1<<i) == 0 && (n.kept == 0 || n.kept > d) {
			out = append(out, step{what: jumps, ticks: d})
		}
	}
	if w.lost < s.losses && up == 7 {
		out = append(out, step{what: loses, nodes: 1}, step{what: loses, nodes: 2}, step{what: loses, nodes: 4})
	}
	return append(out, step{what: passes, ticks: 1}, step{what: passes, ticks: retention})
}

// stepsOf are those of a claim's caller.
func (s *setting) stepsOf(w *world, c int8, up nodeSet, out []step) []step {
	cl := &w.claims[c]
	heard := cl.left > 0 && w.agreedBy(c) >= majority
	switch cl.phase {
	case idle:
		if c > 0 && w.claims[c-1].phase == idle {
			return out
		}
		out = rounds(step{what: begins, claim: c}, up, out)
	case asking:
		if heard {
			out = rounds(step{what: proceeds, claim: c}, up, out)
		}
	case confirming:
		if heard {
			out = append(out, step{what: proceeds, claim: c})
		}
	case held:
		if heard && cl.renewed > 0 {
			out = append(out, step{what: proceeds, claim: c})
		}
		if cl.renewed == 0 && cl.left < ttl {
			out = rounds(step{what: renews, claim: c}, up, out)
		}
	}
	if cl.phase != idle && cl.phase != released {
		out = rounds(step{what: ends, claim: c}, up, out)
	}
	return out
}

// rounds are the round st with every set of nodes that it may reach at once.
func rounds(st step, up nodeSet, out []step) []step {
	for ns := range up + 1 {
		if ns&^up != 0 {
			continue
		}
		st.nodes, st.goesOn = ns, false
		out = append(out, st)
		if st.what != ends && bits.OnesCount8(uint8(ns)) >= majority {
			st.goesOn = true
			out = append(out, st)
		}
	}
	return out
}

// stepsBetween are those of a claim and a node.
func (s *setting) stepsBetween(w *world, c int8, n int, out []step) []step {
	cl, l := &w.claims[c], &w.nodes[n].links[c]
	st := step{what: sends, claim: c, nodes: 1 << n}
	lacks := cl.phase == held && cl.renewed == 0 && l.vote != agreed
	if (lacks || s.joinsReleased && cl.granted && cl.phase == released) && l.sent&(1<<join) == 0 {
		st.command = join
		out = append(out, st)
	}
	if s.leftover && cl.phase == released && l.touched && l.sent&(1<<release) == 0 {
		st.command = release
		out = append(out, st)
	}
	if w.nodes[n].away > 0 {
		return out
	}
	st.what = arrives
	for st.command = acquire; st.command <= release; st.command++ {
		if l.sent&(1<<st.command) == 0 {
			continue
		}
		st.answered, st.goesOn = false, false
		out = append(out, st)
		if l.turn == st.command && (st.command != release || s.leftover) {
			st.answered = true
			out = append(out, st)
			if st.command <= renew && cl.left > 0 && w.agreedBy(c) == majority-1 {
				st.goesOn = true
				out = append(out, st)
			}
		}
	}
	return out
}

package redlock_test

import "slices"

// The callers' part: what the driver sends, and what it makes of the answers.

// take makes a step, and says which promise it breaks.
func (s *setting) take(w *world, st step) (violation string) {
	cl := &w.claims[st.claim]
	switch st.what {
	case begins:
		cl.phase, cl.left = asking, ttl
		s.round(w, st.claim, acquire, st.nodes)
	case proceeds:
		violation = s.proceed(w, st.claim, st.nodes)
	case renews:
		cl.renewed = ttl
		s.round(w, st.claim, renew, st.nodes)
	case ends:
		s.end(w, st.claim, st.nodes)
	case passes:
		w.pass(st.ticks)
	case jumps:
		w.jumped |= 1 << slices.Index(s.jumps, st.ticks)
		w.jump(&w.nodes[0], st.ticks)
		for i := range w.claims {
			w.claims[i].robbed = w.claims[i].robbed && !s.strict
		}
	}
	for i := range w.nodes {
		n := &w.nodes[i]
		if !st.nodes.has(i) {
			continue
		}
		switch st.what {
		case sends:
			l := &n.links[st.claim]
			l.touched = l.touched || cl.phase != released
			l.send(st.command)
		case arrives:
			s.arrive(w, n, st)
		case loses:
			w.lost++
			n.holder, n.left, n.fence, n.kept, n.away = free, 0, 0, 0, ttl
		}
	}
	if st.goesOn && violation == "" && w.agreedBy(st.claim) >= majority {
		violation = s.proceed(w, st.claim, 0)
	}
	if s.leftover && violation == "" {
		violation = w.leftover()
	}
	return violation
}

// proceed does the steps of the driver's Acquire and confirm, or of its renew, with a majority. A
// second round reaches some nodes at once.
func (s *setting) proceed(w *world, c int8, second nodeSet) (violation string) {
	cl := &w.claims[c]
	switch {
	case cl.phase == confirming:
		return w.grant(c)
	case cl.phase == held && cl.renewed > 0:
		cl.left, cl.renewed = cl.renewed, 0
		return ""
	case cl.phase != asking:
		return ""
	}
	by := 0
	for i := range w.nodes {
		l := &w.nodes[i].links[c]
		switch {
		case l.vote != agreed:
		case by == 0 || l.proposal > cl.token:
			by, cl.token = 1, l.proposal
		case l.proposal == cl.token:
			by++
		}
		l.proposal = 0
	}
	cl.last = cl.token + tokensOf[c] - 1
	if by >= majority || s.noSecondRound {
		return w.grant(c)
	}
	cl.phase = confirming
	s.round(w, c, confirm, second)
	return ""
}

// end is the driver's Release, or its clean-up after an attempt.
func (s *setting) end(w *world, c int8, reached nodeSet) {
	cl := &w.claims[c]
	cl.phase, cl.left, cl.renewed = released, 0, 0
	if !cl.granted {
		cl.token, cl.last = 0, 0
	}
	s.round(w, c, release, reached)
}

// round sends a command to the nodes that it is for.
func (s *setting) round(w *world, c int8, k command, reached nodeSet) {
	for i := range w.nodes {
		n := &w.nodes[i]
		l := &n.links[c]
		switch {
		case k == acquire:
			l.touched = true
		case k == confirm && (l.vote == denied || l.vote == unheard && !s.unheard):
			continue
		case k == release && !l.touched && !w.claims[c].granted:
			continue
		}
		l.vote, l.proposal = unheard, 0
		l.send(k)
		if reached.has(i) {
			s.arrive(w, n, step{claim: c, command: k, answered: true})
		}
	}
}

// arrive runs a command on a node.
func (s *setting) arrive(w *world, n *node, st step) {
	c := st.claim
	l, last := &n.links[c], w.claims[c].last
	if !s.repeats {
		l.sent &^= 1 << st.command
	}
	yes, proposal := false, int32(0)
	switch st.command {
	case acquire:
		yes, proposal = n.acquire(c)
	case confirm:
		yes = n.confirm(c, last, s.mistakes)
	case renew:
		yes = n.renew(c)
	case join:
		yes = n.join(c, last, s.mistakes)
	case release:
		yes = n.release(c)
	}
	if !st.answered {
		return
	}
	l.turn = nothing
	l.after(st.command, yes, s.mistakes)
	if st.command >= join || st.command == acquire && w.claims[c].phase != asking {
		return // no part of the round under way
	}
	l.vote, l.proposal = denied, proposal
	if yes || s.anyConfirms && st.command == confirm {
		l.vote = agreed
	}
}

// send has a command under way to a node. The one before, if it has no answer yet, was
// given up: commands of one claim to one node take turns.
func (l *link) send(k command) {
	if l.turn == acquire || l.turn == join {
		l.late++
	}
	l.sent |= 1 << k
	l.turn = k
}

// after is that of hold in hold.go, for commands that were answered. The failed ones
// count as late when send gives them up.
func (l *link) after(k command, yes bool, m mistakes) {
	switch {
	case !yes:
	case k == acquire || k == join:
		l.placed = true
	case !l.placed && l.late > 0:
		l.late--
		l.placed = true
	}
	switch k {
	case acquire, join:
		if !yes && l.late == 0 {
			l.touched = false
		}
	case confirm, renew:
		if !yes {
			l.placed, l.touched = false, l.late > 0
		}
	case release:
		l.placed, l.touched = false, l.late > 0 && !m.releasesOnce
	}
}

// agreedBy counts the nodes that said yes in the round.
func (w *world) agreedBy(c int8) int {
	count := 0
	for i := range w.nodes {
		if w.nodes[i].links[c].vote == agreed {
			count++
		}
	}
	return count
}

// The violations.
const (
	twoHold    = "two claims hold the lock"
	sameToken  = "two grants have the same token"
	goesBack   = "the token is less than that of a hold that was over"
	leftBehind = "a key stays behind"
)

// grant makes c a holder, and says which promise that breaks.
func (w *world) grant(c int8) (violation string) {
	b := &w.claims[c]
	b.phase, b.granted = held, true
	for i := range w.claims {
		a := &w.claims[i]
		switch {
		case a == b || !a.granted:
		case a.token <= b.last && b.token <= a.last:
			violation = sameToken // if the two hold the lock as well, that is the greater trouble
		case a.phase == held && !a.robbed && !b.robbed:
			return twoHold
		case a.phase != held && b.token < a.token && !b.robbed:
			return goesBack
		}
	}
	return violation
}

// leftover says whether a key is there that its caller believes to be gone.
func (w *world) leftover() string {
	for i := range w.nodes {
		n := &w.nodes[i]
		if n.holder != free && w.claims[n.holder].phase == released && !n.links[n.holder].touched {
			return leftBehind
		}
	}
	return ""
}

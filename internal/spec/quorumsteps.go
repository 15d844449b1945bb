package spec

import "fmt"

// The steps of a lock on three nodes: commands arrive, clients send, are granted and write, time goes by.

// late are commands that come late, and whose replies are not heard.
func (a Assumptions) late(q Quorum, c int, take func(string, Quorum)) {
	for n := range nodes {
		for _, round := range []round{acquire, confirm} {
			if !q.Clients[c].pending(round).has(n) {
				continue
			}
			p := q
			a.apply(&p, c, n, round)
			take(fmt.Sprintf("%s's %s comes late to node %d", name(c), round, n), p)
		}
	}
}

// round is a command to all nodes.
type round string

const (
	acquire round = "acquire"
	confirm round = "second round"
	release round = "release"
)

// pending returns the nodes that a round may yet reach; nil for a release.
func (me *Client) pending(r round) *Where {
	return map[round]*Where{acquire: &me.Acquire, confirm: &me.Confirm}[r]
}

// apply applies a command at a node, in one atomic step. It reports whether the node agrees.
func (a Assumptions) apply(q *Quorum, c, n int, r round) (yes bool) {
	me, node := &q.Clients[c], &q.Nodes[n]
	if late := me.pending(r); late != nil {
		*late &^= 1 << n
	}
	mine := node.Holder == int8(c)
	switch {
	case r == acquire && node.Holder == none:
		*node = Node{Holder: int8(c), Left: ttl, Counter: node.Counter + 1}
		return true
	case r == confirm && mine:
		node.Counter = max(node.Counter, me.Token)
		return true
	case r == release && mine:
		node.Holder, node.Left = none, 0
	}
	return r == acquire && mine
}

// send sends a round, which reaches some nodes at once. It takes a step for each set of them.
func (a Assumptions) send(q Quorum, c int, r round, take func(string, Quorum)) {
	q.Clients[c].Yes = 0
	if late := q.Clients[c].pending(r); late != nil {
		*late = everywhere
	}
	for at := range everywhere + 1 {
		if a.Lossless && at != everywhere {
			continue
		}
		p := q
		me, text := &p.Clients[c], ""
		for n := range nodes {
			if !at.has(n) {
				continue
			}
			text += fmt.Sprintf(" %d", n)
			if !a.apply(&p, c, n, r) || r == release {
				continue
			}
			me.Yes |= 1 << n
			if r == acquire {
				me.Proposed[n] = p.Nodes[n].Counter
			}
		}
		take(fmt.Sprintf("%s's %s reaches the nodes%s", name(c), r, text), p)
	}
}

// client lists the steps of a client.
func (a Assumptions) client(q Quorum, c int, take func(string, Quorum)) {
	me := q.Clients[c]
	step := func(what string, change func(q *Quorum, me *Client)) {
		p := q
		change(&p, &p.Clients[c])
		take(name(c)+" "+what, p)
	}
	switch {
	case me.Phase == Ended:
		return
	case me.Phase == Idle:
		if c == 0 || q.Clients[c-1].Phase != Idle {
			q.Clients[c] = Client{Phase: Proposing, Left: ttl, True: ttl}
			a.send(q, c, acquire, take)
		}
		return
	case me.Frozen:
		step("goes on; its clock has stood still", func(_ *Quorum, me *Client) { me.Frozen = false })
		return
	case q.Paused < a.Pauses:
		step("is suspended, and its clock stands still", func(q *Quorum, me *Client) { me.Frozen, q.Paused = true, q.Paused+1 })
	}
	agreed := me.Left > 0 && me.Yes.count() >= a.majority()
	switch {
	case me.Phase == Proposing && agreed:
		a.proposed(q, c, take)
	case me.Phase == Confirming && agreed:
		step("has its token confirmed by a majority, and holds", func(q *Quorum, _ *Client) { a.granted(q, c) })
	case me.Phase == Holding && !me.Wrote && (me.Token >= q.Seen || a.Unchecked):
		step("writes", func(q *Quorum, _ *Client) { a.write(q, c) })
	}
	q.Clients[c].Phase, q.Clients[c].True = Ended, 0
	a.send(q, c, release, take)
}

// proposed makes the greatest proposal the token. If a majority has not proposed that very token,
// it is written back in a second round.
func (a Assumptions) proposed(q Quorum, c int, take func(string, Quorum)) {
	me, by := &q.Clients[c], 0
	for n := range nodes {
		switch p := me.Proposed[n]; {
		case !me.Yes.has(n):
		case p > me.Token:
			me.Token, by = p, 1
		case p == me.Token:
			by++
		}
	}
	if a.PrivateCounter {
		me.Token, by = 1, nodes
	}
	if by >= a.majority() || a.NoSecondRound {
		a.granted(&q, c)
		take(fmt.Sprintf("%s has a majority, and holds with token %d", name(c), q.Clients[c].Token), q)
		return
	}
	me.Phase, me.Proposed = Confirming, [nodes]uint8{}
	a.send(q, c, confirm, take)
}

// granted makes a client a holder, as it believes. One whose clock has stood still for too long was
// granted nothing: its token is not looked at.
func (a Assumptions) granted(q *Quorum, c int) {
	me := &q.Clients[c]
	me.Phase, me.Yes, me.Confirm, me.Proposed = Holding, 0, 0, [nodes]uint8{}
	if a.FromReply {
		me.Left = ttl
	}
	if me.True == 0 {
		return
	}
	me.Granted = true
	for o, other := range q.Clients {
		if o == c || !other.Granted {
			continue
		}
		q.Same = q.Same || other.Token == me.Token
		q.Back = q.Back || other.True == 0 && me.Token < other.Token
	}
}

// write writes to the resource, which takes it.
func (a Assumptions) write(q *Quorum, c int) {
	me, other := &q.Clients[c], q.Clients[1-c]
	me.Wrote = true
	q.Seen = max(q.Seen, me.Token)
	q.Stale = q.Stale || me.True == 0 && other.Wrote && other.Granted && other.Token > me.Token
}

// tick lets time pass.
func (a Assumptions) tick(q Quorum) Quorum {
	for n := range q.Nodes {
		if node := &q.Nodes[n]; node.Holder != none {
			if node.Left--; node.Left == 0 {
				node.Holder = none
			}
		}
	}
	for c := range q.Clients {
		me := &q.Clients[c]
		me.True -= min(me.True, 1)
		if me.Frozen || me.Left == 0 {
			continue
		}
		if me.Left--; me.Left == 0 && me.Phase == Holding {
			me.Phase = Ended
		}
	}
	return q
}

package spec

import (
	"fmt"
	"slices"
	"strings"

	"github.com/distlock/locker/internal/explore"
)

// A lock on three nodes, and its token. Each of two clients makes one attempt; a resource that the
// lock protects gets their writes. docs/decisions/0008-redlock-tokens.md has the protocol, and the tests of
// strategy/redlock a larger model: three claims, renewals, joins, nodes that lose their data, clocks
// that are set.

const (
	nodes   = 3
	clients = 2
)

// Quorum is a state.
type Quorum struct {
	Nodes   [nodes]Node
	Clients [clients]Client
	Paused  uint8 // how many clocks have stood still
	Seen    uint8 // the greatest token that the resource has seen
	Stale   bool  // it took a write of a hold that was over before that of a write it had taken
	Back    bool  // a token was not greater than that of a hold that was over
	Same    bool  // two grants had one token
}

// Node is an independent server.
type Node struct {
	Holder  int8  // the client whose claim has the key; none
	Left    uint8 // ticks until that is over
	Counter uint8 // of tokens
}

// Client is one attempt, and what follows from it.
type Client struct {
	Phase   Phase
	Left    uint8 // ticks for which it may rely on the lock, by its clock
	True    uint8 // likewise by a clock that has not stood still
	Frozen  bool  // it does nothing, and its clock stands still
	Token   uint8
	Granted bool // in time
	Wrote   bool // a write that the resource took

	Acquire  Where        // the nodes to which its first round may come late
	Confirm  Where        // likewise its second; a release is not late, it is lost
	Yes      Where        // the nodes that have agreed in the present round
	Proposed [nodes]uint8 // the token that each has proposed
}

// Where is a set of nodes: those to which a command is under way, or which have answered.
type Where uint8

func (w Where) has(n int) bool { return w&(1<<n) != 0 }

func (w Where) count() (n int) {
	for i := range nodes {
		if w.has(i) {
			n++
		}
	}
	return n
}

const everywhere Where = 1<<nodes - 1

// Phase is how far a client has come.
type Phase uint8

// The phases.
const (
	Idle       Phase = iota
	Proposing        // the first round
	Confirming       // the second
	Holding
	Ended
)

// Assumptions are what may happen, and the mistakes that are planted.
type Assumptions struct {
	Pauses         uint8 // how many clocks may stand still: a machine is suspended, and its clock with it
	Lossless       bool  // each command reaches each node at once: fewer states
	Unchecked      bool  // the resource does not compare tokens
	HalfIsEnough   bool  // one of three nodes is taken for a majority
	NoSecondRound  bool  // the greatest proposal is the token at once
	FromReply      bool  // the lease counts from the answers
	PrivateCounter bool  // a client counts tokens by itself
}

// The promises of a lock on several nodes.
const (
	OneHolds   = "at most one client believes that it holds the lock"
	NoStale    = "the resource takes no write of a hold that was over, after one of a later hold"
	TokensGrow = "a token is greater than that of each hold that was over"
	TokensVary = "no two grants have one token"
)

// QuorumModel returns the model under some assumptions, with the promises named.
func QuorumModel(a Assumptions, promises ...string) explore.Model[Quorum] {
	m := explore.Model[Quorum]{Steps: a.steps}
	for n := range m.Begin.Nodes {
		m.Begin.Nodes[n].Holder = none
	}
	m.Begin.Nodes[0].Counter = 2 // the counters of nodes drift apart
	kept := map[string]func(Quorum) bool{
		OneHolds:   func(q Quorum) bool { return q.Clients[0].Phase != Holding || q.Clients[1].Phase != Holding },
		NoStale:    func(q Quorum) bool { return !q.Stale },
		TokensGrow: func(q Quorum) bool { return !q.Back },
		TokensVary: func(q Quorum) bool { return !q.Same },
	}
	for _, name := range promises {
		m.Promises = append(m.Promises, explore.Promise[Quorum]{Name: name, Kept: kept[name]})
	}
	return m
}

func (a Assumptions) majority() int {
	if a.HalfIsEnough {
		return nodes / 2
	}
	return nodes/2 + 1
}

// steps lists what may happen next. A round of commands reaches some of the nodes at once, which answer; to
// the others each may come later, or never.
func (a Assumptions) steps(q Quorum, all func(string, Quorum)) {
	take := func(name string, q Quorum) { all(name, q.forget()) }
	for c := range q.Clients {
		a.late(q, c, take)
		a.client(q, c, take)
	}
	take("a tick passes", a.tick(q))
}

// forget drops what makes no difference any more, so that there are fewer states.
func (q Quorum) forget() Quorum {
	for c := range q.Clients {
		if me := &q.Clients[c]; me.Phase == Ended {
			me.Yes, me.Proposed, me.Left, me.Frozen = 0, [nodes]uint8{}, 0, false
			if !me.Granted {
				me.Token, me.True = 0, 0
			}
		}
	}
	if p := q.swapped(); p.less(q) {
		return p
	}
	return q
}

// swapped is q with the names of the last two nodes, which began alike, exchanged.
func (q Quorum) swapped() Quorum {
	swap := func(w *Where) { *w = *w&1 | *w&2<<1 | *w&4>>1 }
	q.Nodes[1], q.Nodes[2] = q.Nodes[2], q.Nodes[1]
	for c := range q.Clients {
		me := &q.Clients[c]
		me.Proposed[1], me.Proposed[2] = me.Proposed[2], me.Proposed[1]
		swap(&me.Acquire)
		swap(&me.Confirm)
		swap(&me.Yes)
	}
	return q
}

// less is some order of a state and its swapped one.
func (q Quorum) less(p Quorum) bool {
	sum := func(q Quorum) (sum [8]int) {
		for i, n := range q.Nodes[1:] {
			sum[0] += (int(n.Holder)+2)*(i+1) + int(n.Left)*10*(i+1) + int(n.Counter)*100*(i+1)
		}
		for c, me := range q.Clients {
			sum[1+3*c], sum[2+3*c] = int(me.Acquire)<<8|int(me.Confirm)<<4|int(me.Yes), int(me.Proposed[1])<<8|int(me.Proposed[2])
		}
		return sum
	}
	a, b := sum(q), sum(p)
	return slices.Compare(a[:], b[:]) < 0
}

func name(c int) string { return string(rune('A' + c)) }

// String shows the nodes, the clients and the resource.
func (q Quorum) String() string {
	var b strings.Builder
	for _, n := range q.Nodes {
		holder := "-"
		if n.Holder != none {
			holder = fmt.Sprintf("%s:%d", name(int(n.Holder)), n.Left)
		}
		fmt.Fprintf(&b, "[%-3s #%d] ", holder, n.Counter)
	}
	for c, me := range q.Clients {
		fmt.Fprintf(&b, " %s %s", name(c), [...]string{"idle", "asks", "confirms", "holds", "ended"}[me.Phase])
		if me.Phase == Holding {
			fmt.Fprintf(&b, " %d", me.Token)
		}
	}
	fmt.Fprintf(&b, "  resource %d", q.Seen)
	return b.String()
}

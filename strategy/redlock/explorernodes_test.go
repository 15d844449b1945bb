package redlock_test

import (
	"fmt"
	"strings"
)

// A model of the token protocol; docs/decisions/0008 has the argument. This file has the
// nodes with their scripts, explorercallers_test.go the driver's part, explorersteps_test.go
// what may happen next, and explorer_test.go goes through it. The model says whether the
// protocol is sound, not whether the scripts follow it: a change of a script needs the same
// change of the method here that bears its name. Locks have one claim per caller; hand-overs
// are there as blocks of tokens.

const (
	ttl       = 2    // ticks
	retention = 4    // ticks; at least two TTLs, as in redisdriver
	tick      = 100  // µs of a clock: more than a history has proposals, since grants come slower than one a µs
	tenth     = tick // the unit in which counters follow a clock
	majority  = 2
	free      = int8(-1)
)

// world is a state. It has no clock: lifetimes are the ticks that remain, and
// tokens and clocks count from the true time, in µs, so that histories which differ
// only in when they happened come to the same state.
type world struct {
	nodes  [3]node
	claims [3]claim
	jumped uint8 // the jumps of the clock that were made
	lost   uint8 // how many times a node lost its data
}

type node struct {
	clock  int32 // how far it is ahead of the true time
	holder int8  // the lock's
	left   int8
	fence  int32 // the counter
	kept   int8  // 0: there is no counter
	away   int8  // how long the node has still to stay away
	links  [3]link
}

// claim is a caller's knowledge of its claim, without the rounds' answers.
type claim struct {
	phase   phase
	granted bool
	robbed  bool  // a node's clock was set ahead, and the node forgets the key before the claim's time is over
	left    int8  // of the lease, or of the time in which an attempt may succeed (R9)
	renewed int8  // what will be left if the renewal under way gets a majority
	token   int32 // the first
	last    int32 // those of hand-overs included
}

type phase uint8

const (
	idle phase = iota
	asking
	confirming
	held
	ended // without a release
	released
)

// link is a claim's dealings with one node. touched, placed, and late are those of
// holdNode in hold.go.
type link struct {
	sent     uint8   // bits of the commands that may yet arrive
	turn     command // the one whose answer is awaited
	vote     vote    // in the round under way, or the last one
	proposal int32
	touched  bool
	placed   bool
	late     uint8
}

type vote uint8

const (
	unheard vote = iota
	agreed
	denied
)

type command uint8

const (
	nothing command = iota
	acquire
	confirm
	renew
	join
	release
)

// tokensOf is how many tokens in a row each claim asks for.
var tokensOf = [3]int32{2, 1, 2}

// mistakes are the bugs that can be planted.
type mistakes struct {
	noSecondRound bool // the greatest proposal is the token at once
	bareRetention bool // raise_token does not look how far ahead the token is
	goneConfirms  bool // confirm.lua does not look for the claim
	anyConfirms   bool // a node that only answers the second round counts
	joinsReleased bool // a join is sent after the release
	releasesOnce  bool // a release that may have overtaken the acquire is not repeated
}

// acquire is acquire.lua.
func (n *node) acquire(c int8) (granted bool, proposal int32) {
	switch n.holder {
	case free:
		n.holder, n.left = c, ttl
		return true, n.propose(tokensOf[c])
	case c:
		n.left = max(n.left, ttl)
		return true, n.proposed(tokensOf[c])
	}
	return false, 0
}

// confirm is confirm.lua.
func (n *node) confirm(c int8, last int32, m mistakes) bool {
	if n.holder != c && !m.goneConfirms {
		return false
	}
	n.raiseToken(last, m)
	return true
}

// renew is renew.lua.
func (n *node) renew(c int8) bool {
	if n.holder != c {
		return false
	}
	n.left = max(n.left, ttl)
	return true
}

// join is join.lua. The key gets a whole TTL, which is the most that a join gives it.
func (n *node) join(c int8, last int32, m mistakes) bool {
	if n.holder != free && n.holder != c {
		return false
	}
	n.raiseToken(last, m)
	if n.holder == free {
		n.holder, n.left = c, ttl
	}
	return true
}

// release is release.lua.
func (n *node) release(c int8) bool {
	if n.holder != c {
		return false
	}
	n.holder, n.left = free, 0
	return true
}

// propose is that of token.lua.
func (n *node) propose(tokens int32) int32 {
	if n.kept == 0 {
		n.fence, n.kept = n.clock+tokens-1, retention
		return n.clock
	}
	n.fence += tokens
	first := n.fence - tokens + 1
	at := n.clock - (n.clock%tenth+tenth)%tenth // Go's % has the sign of the dividend
	if behind := at - first; behind > 0 {
		n.fence += behind
		first += behind
	}
	return first
}

// proposed is that of token.lua: the claim has the key already.
func (n *node) proposed(tokens int32) int32 {
	if n.kept == 0 {
		return n.propose(tokens)
	}
	return n.fence - tokens + 1
}

// raiseToken is raise_token of token.lua: a counter that is ahead of the clock is kept
// until the clock has caught up with it, and the retention more.
func (n *node) raiseToken(token int32, m mistakes) {
	if n.kept > 0 && n.fence >= token {
		return
	}
	keep := int8(retention)
	if ahead := token - n.clock; ahead > 0 && !m.bareRetention {
		keep += int8((ahead + tick - 1) / tick)
	}
	n.fence, n.kept = token, max(n.kept, keep)
}

// elapse takes so many ticks off what is left of the lock and the counter. Redis keeps
// times of expiry, so a clock that is set ahead does the same, and one that is set
// back the opposite.
func (n *node) elapse(ticks int8) {
	if n.holder != free {
		if n.left -= ticks; n.left <= 0 {
			n.holder, n.left = free, 0
		}
	}
	if n.kept > 0 {
		if n.kept -= ticks; n.kept <= 0 {
			n.fence, n.kept = 0, 0
		}
	}
}

// pass lets time go by.
func (w *world) pass(ticks int8) {
	for i := range w.nodes {
		n := &w.nodes[i]
		n.elapse(ticks)
		n.away = max(n.away-ticks, 0)
		if n.kept > 0 {
			n.fence -= int32(ticks) * tick
		}
		for c := range n.links {
			if w.claims[c].phase == asking && n.links[c].vote == agreed {
				n.links[c].proposal -= int32(ticks) * tick
			}
		}
	}
	for i := range w.claims {
		c := &w.claims[i]
		if c.granted || c.phase == confirming {
			c.token -= int32(ticks) * tick
			c.last -= int32(ticks) * tick
		}
		c.renewed = max(c.renewed-ticks, 0)
		c.left = max(c.left-ticks, 0)
		if c.phase == held && c.left == 0 {
			c.phase, c.renewed = ended, 0
		}
	}
}

// jump sets a node's clock ahead, or back.
func (w *world) jump(n *node, ticks int8) {
	if n.holder != free {
		c := &w.claims[n.holder]
		c.robbed = c.robbed || n.left-ticks < max(c.left, c.renewed)
	}
	n.clock += int32(ticks) * tick
	n.elapse(ticks)
}

// String shows what the nodes have.
func (w *world) String() string {
	var s strings.Builder
	for i, n := range w.nodes {
		fmt.Fprintf(&s, "  #%d ", i+1)
		switch {
		case n.away > 0:
			fmt.Fprintf(&s, "%-10s", fmt.Sprintf("away:%d", n.away))
		case n.holder == free:
			fmt.Fprintf(&s, "%-4s", "-")
		default:
			fmt.Fprintf(&s, "%-4s", fmt.Sprintf("%c:%d", 'A'+n.holder, n.left))
		}
		if n.kept > 0 {
			fmt.Fprintf(&s, "%4d:%-2d", n.fence, n.kept)
		} else if n.away == 0 {
			fmt.Fprintf(&s, "%7s", "-")
		}
	}
	return s.String()
}

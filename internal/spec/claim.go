package spec

import (
	"fmt"
	"strings"

	"github.com/distlock/locker/internal/explore"
)

// The life of a claim: one key, one store, two processes. Time goes by in ticks.

const (
	ttl       = 2 // ticks for which the store keeps a claim
	claims    = 3 // ids at most, each of which is used for one attempt
	processes = 2
	grants    = 2 // that the store makes at most: an acquire may arrive again when the key is free
	block     = 2 // tokens that a grant reserves: one for the claim, one for a hand-over
)

// Life is a state.
type Life struct {
	Store  Store
	Claims [claims]Claim
	IDs    uint8 // how many attempts there may be
	Next   uint8 // the id of the next one
	Tokens uint8 // the greatest token that a holder has had
	Order  bool  // a holder has had a token that was not greater than all before it
	Wrong  bool  // the store has answered yes to a renewal of a claim that did not hold the key
}

// Store is what the store knows of the key.
type Store struct {
	Holder  int8  // the claim that has the key; none
	Left    uint8 // ticks until that is over
	First   uint8 // the first token of that claim
	Counter uint8 // the last token that was reserved
}

const none = int8(-1)

// Claim is what a process knows of a claim, and what is under way on its behalf.
type Claim struct {
	State   State
	Process uint8
	Left    uint8 // ticks for which the process may rely on it
	Token   uint8 // of the present holder
	Handed  bool  // it was handed over inside the process
	Broken  bool  // somebody took the lock away
	Sent    uint8 // ticks since the acquire was sent, up to ttl
	Renewed uint8 // ticks since the renewal was sent, up to ttl

	Commands Set   // that may arrive, each any number of times
	Replies  Set   // that may arrive
	Proposed uint8 // the token in the reply to the acquire
}

// State is how far a claim has come.
type State uint8

// The states.
const (
	Unused   State = iota
	Asking         // its acquire was sent
	Held           // it was granted
	Over           // it was lost, or left to its TTL
	Released       // a release was sent for it
)

// Set has commands, or replies to them.
type Set uint8

// The commands; a reply says yes, or no.
const (
	Acquire Set = 1 << iota
	Renew
	Release
	Denied // of replies: to a renewal
)

// Mistakes can be planted in the protocol.
type Mistakes struct {
	ReleasesAny     bool // the store does not compare the id of a release
	RenewsAny       bool // nor that of a renewal
	RenewCreates    bool // a renewal makes a lock that has gone again
	GrantsAny       bool // the store grants a key that is held
	CountsFromReply bool // a lease counts from the answer, and not from when its command was sent
	AcceptsLate     bool // a grant counts whose lease is over when it arrives
	IgnoresClock    bool // a lease ends by an answer only
	IgnoresDenial   bool // a renewal that was denied changes nothing
	OwnTokens       bool // a process counts tokens by itself
	RepeatsToken    bool // a hand-over keeps the token
	ReservesOne     bool // a grant reserves one token, and is handed over all the same
	ReusesID        bool // an attempt after one that was given up has its id
	RevivesReleased bool // a renewal that is answered after the release makes the claim held again
	LetsHeldExpire  bool // LetExpire leaves its holder in the belief that it holds
}

// ClaimModel is the model of a claim's life, with so many ids: 2 or 3.
func ClaimModel(ids uint8, m Mistakes) explore.Model[Life] {
	return explore.Model[Life]{
		Begin: Life{IDs: ids, Store: Store{Holder: none}},
		Steps: m.steps,
		Promises: []explore.Promise[Life]{
			{Name: "at most one process holds the key, unless somebody took it from the other", Kept: Life.exclusive},
			{Name: "who holds has the key in the store for as long as it relies on it", Kept: Life.covered},
			{Name: "only a claim that holds the key is renewed", Kept: func(l Life) bool { return !l.Wrong }},
			{Name: "each holder's token is greater than that of every holder before", Kept: func(l Life) bool { return !l.Order }},
		},
	}
}

func (l Life) exclusive() bool {
	holders := 0
	for _, c := range l.Claims {
		if c.State == Held && !c.Broken {
			holders++
		}
	}
	return holders <= 1
}

func (l Life) covered() bool {
	for id, c := range l.Claims {
		if c.State == Held && !c.Broken && (l.Store.Holder != int8(id) || l.Store.Left < c.Left) {
			return false
		}
	}
	return true
}

// steps lists what may happen next. A command or a reply that never arrives was lost.
func (m Mistakes) steps(l Life, take func(string, Life)) {
	for p := range uint8(processes) {
		m.begin(l, p, take)
	}
	all := take
	take = func(name string, n Life) { all(name, m.forget(n)) }
	for id := range int(l.Next) {
		m.arrivals(l, id, take)
		m.replies(l, id, take)
		m.callers(l, id, take)
	}
	take("a tick passes", m.tick(l))
	if l.Store.Holder != none {
		n := l
		n.Claims[n.Store.Holder].Broken = true
		n.Store.Holder, n.Store.Left = none, 0
		take("an operator breaks the lock", n)
	}
}

// forget drops what makes no difference any more, so that there are fewer states.
func (m Mistakes) forget(l Life) Life {
	for id := range l.Claims {
		c := &l.Claims[id]
		if c.State != Asking && !m.ReusesID {
			c.Sent, c.Proposed = 0, 0
			c.Replies &^= Acquire
		}
		if c.State != Held && !m.RevivesReleased {
			c.Token, c.Renewed, c.Handed = 0, 0, false
			c.Replies &^= Renew | Denied
		}
		if (c.Commands|c.Replies)&Renew == 0 {
			c.Renewed = 0
		}
	}
	return l
}

// begin sends an attempt of a process that has none, and holds nothing.
func (m Mistakes) begin(l Life, p uint8, take func(string, Life)) {
	again := none
	for id, c := range l.Claims {
		if c.Process == p && (c.State == Asking || c.State == Held) {
			return
		}
		if c.Process == p && c.State == Released {
			again = int8(id)
		}
	}
	if m.ReusesID && again != none {
		n := l
		c := &n.Claims[again]
		c.State, c.Sent, c.Left = Asking, 0, 0
		c.Commands |= Acquire
		take(fmt.Sprintf("process %d asks, with the id %d again", p, again), n)
	}
	if l.Next < l.IDs {
		n := l
		n.Claims[l.Next] = Claim{State: Asking, Process: p, Commands: Acquire}
		n.Next++
		take(fmt.Sprintf("process %d asks, as claim %d", p, l.Next), n)
	}
}

// arrivals are commands that reach the store: once, or once more.
func (m Mistakes) arrivals(l Life, id int, take func(string, Life)) {
	for _, command := range []Set{Acquire, Renew, Release} {
		if l.Claims[id].Commands&command == 0 {
			continue
		}
		n := l
		if m.apply(&n, id, command); n.Store.Counter > grants*block {
			continue
		}
		take(fmt.Sprintf("the store gets the %v of claim %d, which may arrive again", command, id), n)
		n.Claims[id].Commands &^= command
		take(fmt.Sprintf("the store gets the %v of claim %d", command, id), n)
	}
}

// apply is a command at the store: one atomic step.
func (m Mistakes) apply(l *Life, id int, command Set) {
	s, c := &l.Store, &l.Claims[id]
	mine := s.Holder == int8(id)
	switch command {
	case Acquire:
		switch {
		case mine:
			s.Left = max(s.Left, ttl)
		case s.Holder == none || m.GrantsAny:
			reserved := uint8(block)
			if m.ReservesOne {
				reserved = 1
			}
			*s = Store{Holder: int8(id), Left: ttl, First: s.Counter + 1, Counter: s.Counter + reserved}
		default:
			return // a refusal: the caller goes on waiting with another claim, as if it gave up
		}
		c.Proposed = s.First
	case Renew:
		switch {
		case !mine && !m.RenewsAny && !m.RenewCreates:
			c.Replies |= Denied
			return
		case mine || m.RenewsAny && s.Holder != none:
			s.Left = max(s.Left, ttl)
		case m.RenewCreates && s.Holder == none:
			s.Holder, s.Left = int8(id), ttl
		}
		l.Wrong = l.Wrong || !mine
	case Release:
		if mine || m.ReleasesAny {
			s.Holder, s.Left = none, 0
		}
		return // whatever the answer, the claim is over for its process
	}
	c.Replies |= command
}

// replies are answers that reach the process.
func (m Mistakes) replies(l Life, id int, take func(string, Life)) {
	c := l.Claims[id]
	if c.Replies&Acquire != 0 {
		n := l
		m.granted(&n, id)
		take(fmt.Sprintf("process %d gets the grant of claim %d", c.Process, id), n)
	}
	if c.Replies&Renew != 0 {
		n := l
		r := &n.Claims[id]
		r.Replies &^= Renew
		if left := m.leftAfter(c.Renewed); r.State == Held || m.RevivesReleased && r.State == Released {
			r.State, r.Left = Held, max(r.Left, left)
		}
		take(fmt.Sprintf("process %d gets the renewal of claim %d", c.Process, id), n)
	}
	if c.Replies&Denied != 0 {
		n := l
		r := &n.Claims[id]
		r.Replies &^= Denied
		if r.State == Held && !m.IgnoresDenial {
			r.State, r.Left = Over, 0
		}
		take(fmt.Sprintf("process %d learns that claim %d does not hold the key", c.Process, id), n)
	}
}

// leftAfter is how long a lease lasts whose command was sent so many ticks ago.
func (m Mistakes) leftAfter(sent uint8) uint8 {
	if m.CountsFromReply {
		return ttl
	}
	return ttl - sent
}

// granted makes a process the holder, if the grant is still valid.
func (m Mistakes) granted(l *Life, id int) {
	c := &l.Claims[id]
	c.Replies &^= Acquire
	switch left := m.leftAfter(c.Sent); {
	case c.State != Asking:
	case left == 0 && !m.AcceptsLate:
		c.State = Released
		c.Commands |= Release
	default:
		c.State, c.Left = Held, left
		token := c.Proposed
		if m.OwnTokens {
			token = c.Process + 1
		}
		l.holds(c, token)
	}
}

// holds notes the token of a new holder.
func (l *Life) holds(c *Claim, token uint8) {
	l.Order = l.Order || token <= l.Tokens && !c.Broken
	c.Token, l.Tokens = token, max(l.Tokens, token)
}

// callers are what the callers in a process do.
func (m Mistakes) callers(l Life, id int, take func(string, Life)) {
	c := l.Claims[id]
	release := func(name string) {
		n := l
		n.Claims[id].State, n.Claims[id].Left = Released, 0
		n.Claims[id].Commands |= Release
		take(fmt.Sprintf(name, c.Process, id), n)
	}
	switch c.State {
	case Asking:
		release("process %d gives claim %d up, and cleans up after it")
	case Released:
		if c.Commands&Release == 0 {
			release("process %d sends the release of claim %d once more")
		}
	case Held:
		release("process %d unlocks claim %d")
		if c.Commands&Renew == 0 && c.Replies&(Renew|Denied) == 0 && c.Left < ttl {
			n := l
			n.Claims[id].Renewed = 0
			n.Claims[id].Commands |= Renew
			take(fmt.Sprintf("process %d renews claim %d", c.Process, id), n)
		}
		if !c.Handed {
			n := l
			h := &n.Claims[id]
			h.Handed = true
			token := c.Token + 1
			if m.RepeatsToken {
				token = c.Token
			}
			n.holds(h, token)
			take(fmt.Sprintf("process %d hands claim %d over to its next caller", c.Process, id), n)
		}
		n := l
		if !m.LetsHeldExpire {
			n.Claims[id].State, n.Claims[id].Left = Over, 0
		} else {
			n.Claims[id].Left = ttl
		}
		take(fmt.Sprintf("process %d leaves claim %d to its TTL", c.Process, id), n)
	}
}

// tick lets time pass.
func (m Mistakes) tick(l Life) Life {
	if s := &l.Store; s.Holder != none {
		if s.Left--; s.Left == 0 {
			s.Holder = none
		}
	}
	for id := range l.Claims {
		c := &l.Claims[id]
		if c.State == Asking {
			c.Sent = min(c.Sent+1, ttl)
		}
		if c.Commands&Renew != 0 || c.Replies&Renew != 0 {
			c.Renewed = min(c.Renewed+1, ttl)
		}
		if c.State == Held && !m.IgnoresClock {
			if c.Left--; c.Left == 0 {
				c.State = Over
			}
		}
	}
	return l
}

func (s Set) String() string {
	return map[Set]string{Acquire: "acquire", Renew: "renewal", Release: "release", Denied: "denial"}[s]
}

func (s State) String() string {
	return [...]string{"unused", "asking", "held", "over", "released"}[s]
}

// String shows the store and each claim that was used.
func (l Life) String() string {
	var b strings.Builder
	if l.Store.Holder == none {
		b.WriteString("the key is free")
	} else {
		fmt.Fprintf(&b, "claim %d has the key for %d", l.Store.Holder, l.Store.Left)
	}
	for id, c := range l.Claims[:l.Next] {
		fmt.Fprintf(&b, "; %d %v", id, c.State)
		if c.State == Held {
			fmt.Fprintf(&b, " for %d, token %d", c.Left, c.Token)
		}
	}
	return b.String()
}

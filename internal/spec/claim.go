package spec

import (
	"fmt"
	"strings"

	"github.com/distlock/locker/internal/explore"
)

// The life of a claim: one key, one store, two processes. Time goes by in ticks.
//
// An Unlock may keep the claim (locker.WithSticky): the claim is then held without a lease, and the next Lock of the
// process takes it without a command. The engine keeps a claim for a second at most, not late in a lease, and not after
// a renewal without an answer. The model does all of that: it keeps a claim for as long as the claim lasts, and gives
// it up at any time.

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
	Long    bool  // a renewal has lengthened that claim
}

const none = int8(-1)

// Claim is what a process knows of a claim, and what is under way on its behalf.
type Claim struct {
	State   State
	Process uint8
	Left    uint8 // ticks for which the process may rely on it
	Token   uint8 // of the present holder
	Handed  bool  // it was handed over inside the process, or kept and taken again
	Long    bool  // a renewal was answered that has lengthened it
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
	Kept           // it was unlocked, and no release was sent: it has no holder
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

	KeptIgnoresClock  bool // a kept claim does not end by the clock
	KeptCountsAnew    bool // a lease on a kept claim counts from its Lock
	KeptRepeatsToken  bool // it has the token of the lease before it
	KeptTakesTokens   bool // it has a token that was not reserved
	KeptWhileReleased bool // a kept claim can be taken after its release was sent
	KeptLengthened    bool // a claim is kept that a renewal has lengthened
}

// ClaimModel returns the model of a claim's life, with so many ids: 2 or 3.
func ClaimModel(ids uint8, m Mistakes) explore.Model[Life] {
	return explore.Model[Life]{
		Begin: Life{IDs: ids, Store: Store{Holder: none}},
		Steps: m.steps,
		Promises: []explore.Promise[Life]{
			{Name: "at most one process holds the key, unless somebody took it from the other", Kept: Life.exclusive},
			{Name: "who holds has the key in the store for as long as it relies on it", Kept: Life.covered},
			{Name: "only a claim that holds the key is renewed", Kept: func(l Life) bool { return !l.Wrong }},
			{Name: "each holder's token is greater than that of every holder before", Kept: func(l Life) bool { return !l.Order }},
			{Name: "a claim that nobody uses was not lengthened, as far as renewals were answered", Kept: Life.unusedIsShort},
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

// unusedIsShort reports whether the grant of each claim that is kept is a short one: others who wait for a process that
// has died rely on it.
func (l Life) unusedIsShort() bool {
	for id, c := range l.Claims {
		if c.State == Kept && l.Store.Holder == int8(id) && l.Store.Long && c.Replies&Renew == 0 {
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
		n.Store.Holder, n.Store.Left, n.Store.Long = none, 0, false
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
		if c.State != Held && c.State != Kept && !m.RevivesReleased {
			c.Token, c.Renewed, c.Handed = 0, 0, false
			c.Replies &^= Renew | Denied
		}
		if mayBeKept := c.State == Kept || c.State == Held && !c.Handed; !mayBeKept {
			c.Long = false
			l.Store.Long = l.Store.Long && l.Store.Holder != int8(id)
		}
		if (c.Commands|c.Replies)&Renew == 0 {
			c.Renewed = 0
		}
	}
	return l
}

func (s Set) String() string {
	return map[Set]string{Acquire: "acquire", Renew: "renewal", Release: "release", Denied: "denial"}[s]
}

func (s State) String() string {
	return [...]string{"unused", "asking", "held", "over", "released", "kept"}[s]
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
		if c.State == Held || c.State == Kept {
			fmt.Fprintf(&b, " for %d, token %d", c.Left, c.Token)
		}
	}
	return b.String()
}

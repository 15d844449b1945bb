package spec

import "fmt"

// The steps of a claim's life: a process asks, commands and replies arrive, callers act, time goes by.

// begin sends an attempt of a process that has none, holds nothing and keeps nothing.
func (m Mistakes) begin(l Life, p uint8, take func(string, Life)) {
	again := none
	for id, c := range l.Claims {
		if c.Process == p && (c.State == Asking || c.State == Held || c.State == Kept) {
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

// apply applies a command at the store: one atomic step.
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
			s.Left, s.Long = max(s.Left, ttl), true
		case m.RenewCreates && s.Holder == none:
			s.Holder, s.Left = int8(id), ttl
		}
		l.Wrong = l.Wrong || !mine
	case Release:
		if mine || m.ReleasesAny {
			s.Holder, s.Left, s.Long = none, 0, false
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
		switch left := m.leftAfter(c.Renewed); {
		case r.State == Held || m.RevivesReleased && r.State == Released:
			r.State, r.Left, r.Long = Held, max(r.Left, left), !m.KeptLengthened
		case r.State == Kept && m.KeptLengthened:
			r.Left = max(r.Left, left)
		case r.State == Kept:
			r.release()
		}
		take(fmt.Sprintf("process %d gets the renewal of claim %d", c.Process, id), n)
	}
	if c.Replies&Denied != 0 {
		n := l
		r := &n.Claims[id]
		r.Replies &^= Denied
		if (r.State == Held || r.State == Kept) && !m.IgnoresDenial {
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

// callers lists the steps of the callers in a process.
func (m Mistakes) callers(l Life, id int, take func(string, Life)) {
	c := l.Claims[id]
	release := func(name string) {
		n := l
		n.Claims[id].release()
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
		if (!c.Handed || m.KeptTakesTokens) && (!c.Long || m.KeptLengthened) {
			n := l
			n.Claims[id].State = Kept
			take(fmt.Sprintf("process %d unlocks claim %d, and keeps it", c.Process, id), n)
		}
		n := l
		if !m.LetsHeldExpire {
			n.Claims[id].State, n.Claims[id].Left = Over, 0
		} else {
			n.Claims[id].Left = ttl
		}
		take(fmt.Sprintf("process %d leaves claim %d to its TTL", c.Process, id), n)
	case Kept:
		m.kept(l, id, take)
	}
}

// kept takes the steps of a claim that is kept: the next Lock of the process takes it, or the process gives it up,
// because its time without a holder is over, or another process has asked for it.
func (m Mistakes) kept(l Life, id int, take func(string, Life)) {
	n := l
	c := &n.Claims[id]
	token := c.Token + 1
	if m.KeptRepeatsToken {
		token = c.Token
	}
	if m.KeptCountsAnew {
		c.Left = ttl
	}
	c.State, c.Handed = Held, true
	n.holds(c, token)
	take(fmt.Sprintf("process %d locks again, by claim %d, which it has kept", c.Process, id), n)
	if n = l; m.KeptWhileReleased {
		n.Claims[id].Commands |= Release
	} else {
		n.Claims[id].release()
	}
	take(fmt.Sprintf("process %d gives up claim %d, which it has kept", c.Process, id), n)
}

// release sends a release.
func (c *Claim) release() {
	c.State, c.Left = Released, 0
	c.Commands |= Release
}

// tick lets time pass.
func (m Mistakes) tick(l Life) Life {
	if s := &l.Store; s.Holder != none {
		if s.Left--; s.Left == 0 {
			s.Holder, s.Long = none, false
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
		if c.State == Held && !m.IgnoresClock || c.State == Kept && !m.KeptIgnoresClock {
			if c.Left--; c.Left == 0 {
				c.State = Over
			}
		}
	}
	return l
}

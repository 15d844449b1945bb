package blpop

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/distlock/locker/driver"
)

// shortGrant is how long a lock lasts that a release has handed over, at most the TTL;
// queue.lua has it, too.
const shortGrant = 2 * time.Second

// attempt is an Acquire of a process that waits. Once refused it has a place in the
// queue, and may be granted the lock by a release until a later attempt takes the place
// over. It is guarded by inboxes.mu.
type attempt struct {
	w       *watch
	claim   driver.Claim
	named   string     // the owner, if the caller named one
	short   bool       // a grant for less than the TTL will do
	blocks  bool       // pushes to the inbox are popped
	before  []*attempt // those that it names
	sent    time.Time
	refused bool

	// A later attempt has named it: if that one reaches the server late, the lock passes
	// to it then. So a grant that was pushed does not count any more.
	spent bool

	pushed        bool
	token, tokens int64
}

// granted is told that a release has granted the lock to the attempt's claim, in the
// words of the push.
func (at *attempt) granted(words []string) {
	if len(words) != 2 {
		return // it is to look for itself
	}
	token, err := strconv.ParseInt(words[0], 10, 64)
	tokens, err2 := strconv.ParseInt(words[1], 10, 64)
	if err == nil && err2 == nil {
		at.pushed, at.token, at.tokens = true, token, tokens
	}
}

// lasts is for how long the lock is the attempt's if a release has granted it.
func (at *attempt) lasts() time.Duration { return min(at.claim.TTL, shortGrant) }

// answer is the grant that was pushed, for a caller like the attempt's; none if there is
// none that counts. The refusal proves that the grant came after the attempt was sent,
// so the lock lasts from then at least. Where that leaves too little, or a lease must have
// all of its TTL, or replicas are to confirm the grant, the lock is asked for by a command.
func (at *attempt) answer(named string, short bool) (driver.Answer, bool) {
	ok := at.pushed && at.refused && !at.spent && at.named == named && short &&
		time.Since(at.sent) < at.lasts()/2 && !at.w.in.b.d.ReplicaAcks()
	if !ok {
		return driver.Answer{}, false
	}
	return driver.Answer{
		Granted: true, Claim: at.claim.ID, Token: at.token, Tokens: int(at.tokens), Since: at.sent, TTL: at.lasts(),
	}, true
}

// args are what the script is sent of an attempt, beside the request.
func (at *attempt) args() []any {
	blocks, before := 0, make([]string, len(at.before))
	if at.blocks {
		blocks = 1
	}
	for i, earlier := range at.before {
		before[i] = earlier.claim.ID
	}
	return []any{at.w.in.name, blocks, strings.Join(before, " ")}
}

// nameOf is the owner's name, "" unless the caller gave one.
func nameOf(c driver.Claim) string {
	if c.Owner == c.ID {
		return ""
	}
	return c.Owner
}

// ask begins an attempt, or answers it by a grant that was pushed to an earlier one. It
// returns nil if the key is not watched any more.
func (b *inboxes) ask(req driver.Request) (*attempt, driver.Answer) {
	b.mu.Lock()
	defer b.mu.Unlock()
	in := b.open[b.name(req.Key)]
	if in == nil || in.watches[req.Key] == nil {
		return nil, driver.Answer{}
	}
	w := in.watches[req.Key]
	at := &attempt{w: w, claim: req.Claim, named: nameOf(req.Claim), short: req.Short}
	for _, earlier := range w.asked {
		if a, ok := earlier.answer(at.named, at.short); ok {
			b.forget(earlier)
			return nil, a
		}
		if earlier.refused {
			at.before = append(at.before, earlier)
		}
	}
	for _, earlier := range at.before {
		earlier.spent = true
	}
	in.block() // a connection may have become free
	at.sent = time.Now()
	at.blocks = in.blocks && at.sent.After(b.refused)
	w.asked = append(w.asked, at)
	b.asked[req.ID] = at
	in.rouse()
	return at, driver.Answer{}
}

// answered notes how an attempt ended. What was pushed to it may have overtaken its
// refusal.
func (b *inboxes) answered(at *attempt, a driver.Answer, err error) driver.Answer {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case err != nil: // the Locker releases it
		b.forget(at)
		return a
	case at.w.in.watches[at.w.key] != at.w:
		if !a.Granted {
			b.leave([]driver.Claim{at.claim}, func(context.Context) {})
		}
		return a
	}
	for _, earlier := range at.before {
		b.forget(earlier) // it holds nothing, and its place is this one's
	}
	if a.Granted {
		b.forget(at)
		return a
	}
	at.refused = true
	if granted, ok := at.answer(at.named, at.short); ok {
		b.forget(at)
		return granted
	}
	a.NoWakeUp = a.NoWakeUp || !at.blocks
	return a
}

// forget is told that an attempt cannot be granted the lock any more, or was.
func (b *inboxes) forget(at *attempt) {
	delete(b.asked, at.claim.ID)
	at.w.asked = slices.DeleteFunc(at.w.asked, func(o *attempt) bool { return o == at })
}

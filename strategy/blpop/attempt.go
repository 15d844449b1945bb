package blpop

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/distlock/locker/driver"
)

// mostNamed is how many attempts a later one names: in an outage many go unanswered.
const mostNamed = 16

// attempt is an Acquire of a process that waits. Once refused it has a place in the
// queue, and may be granted the lock by a release until a later attempt takes the place
// over. It is guarded by inboxes.mu.
type attempt struct {
	w      *watch
	req    driver.Request
	nth    int        // of the Locker: which of two is the later
	blocks bool       // pushes to the inbox are popped
	before []*attempt // those that it names
	sent   time.Time

	refused bool
	failed  bool // without an answer: the Locker releases it

	// A later attempt has named it. When the later one reaches the server, the lock passes to
	// its claim. So a grant that was pushed to this one does not count any more.
	spent bool

	pushed *grant // of a lock; a push for permits says that they may be free
}

// grant has the tokens of a lock that a release has handed over to this process.
type grant struct{ token, tokens int64 }

// parseGrant reads the words of a message after the claim; nil if they are no grant.
func parseGrant(words []string) *grant {
	if len(words) != 2 {
		return nil
	}
	token, err := strconv.ParseInt(words[0], 10, 64)
	tokens, err2 := strconv.ParseInt(words[1], 10, 64)
	if err != nil || err2 != nil {
		return nil
	}
	return &grant{token, tokens}
}

// answer returns the grant that was pushed, as the answer to req; false if there is
// none that counts. The refusal proves that the grant came after the attempt was sent, so the lock
// lasts from then at least. Where that leaves req too little, or a lease must have all of
// its TTL, or replicas are to confirm the grant, the lock is asked for by a command.
func (at *attempt) answer(req driver.Request) (driver.Answer, bool) {
	lasts := min(at.req.TTL, shortGrant)
	ok := at.pushed != nil && at.refused && !at.spent && nameOf(at.req.Claim) == nameOf(req.Claim) && req.Short &&
		time.Since(at.sent) < min(req.TTL, lasts)/2 && !at.w.in.b.d.ReplicaAcks()
	if !ok {
		return driver.Answer{}, false
	}
	tokens := min(int(at.pushed.tokens), max(req.Tokens, 1)) // the earlier attempt may have asked for more
	return driver.Answer{
		Granted: true, Claim: at.req.ID, Token: at.pushed.token, Tokens: tokens, Since: at.sent, TTL: lasts,
	}, true
}

// args returns the arguments of an attempt that the script gets beside the request.
func (at *attempt) args() []any {
	blocks, before := 0, make([]string, len(at.before))
	if at.blocks {
		blocks = 1
	}
	if at.req.Limit > 0 {
		return []any{at.w.in.name, blocks}
	}
	for i, earlier := range at.before {
		before[i] = earlier.req.ID
	}
	return []any{at.w.in.name, at.nth, blocks, strings.Join(before, " ")}
}

// nameOf returns the owner's name, "" unless the caller gave one.
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
	b.attempts++
	at := &attempt{w: w, req: req, nth: b.attempts}
	for _, earlier := range w.asked {
		if (earlier.req.Limit > 0) != (req.Limit > 0) {
			continue // another kind of claim, and another queue
		}
		if a, ok := earlier.answer(req); ok {
			b.granted(earlier)
			return nil, a
		}
		if earlier.refused || earlier.failed {
			at.before = append(at.before, earlier)
		}
	}
	for len(at.before) > mostNamed {
		b.forget(at.before[0])
		at.before = at.before[1:]
	}
	for _, earlier := range at.before {
		earlier.spent = true
	}
	in.block() // a connection may have become free
	at.sent = time.Now()
	at.blocks = in.blocks && at.sent.After(b.refused)
	w.asked = append(w.asked, at)
	b.asked[req.ID] = at
	in.awake.Send()
	return at, driver.Answer{}
}

// answered notes how an attempt ended. What was pushed to it may have overtaken its
// refusal.
func (b *inboxes) answered(at *attempt, a driver.Answer, err error) driver.Answer {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.asked[at.req.ID] != at: // it is not waited with: see Close and granted
		if err == nil && !a.Granted {
			b.leave(at.req.Claim)
		}
		return a
	case driver.MaybeApplied(err):
		at.failed = true
		return a
	case err != nil:
		b.forget(at)
		return a
	}
	for _, earlier := range at.before {
		b.forget(earlier) // it holds nothing, and its place is this one's
	}
	switch {
	case a.Granted && at.req.Limit > 0:
		b.forget(at) // others of this process wait for permits of their own
		return a
	case a.Granted:
		b.granted(at)
		return a
	}
	at.refused = true
	if granted, ok := at.answer(at.req); ok {
		b.granted(at)
		return granted
	}
	a.NoWakeUp = a.NoWakeUp || !at.blocks
	return a
}

// granted records that at holds the lock, and gives up queue places taken since: this
// process's other waiters are woken by its own Unlock, so a grant to such a place would go
// unused.
func (b *inboxes) granted(at *attempt) {
	var behind []driver.Claim
	for _, o := range at.w.asked {
		delete(b.asked, o.req.ID)
		if o.refused && o.nth > at.nth {
			behind = append(behind, o.req.Claim)
		}
	}
	at.w.asked = nil
	b.leave(behind...)
}

// forget drops an attempt that cannot be granted the lock any more.
func (b *inboxes) forget(at *attempt) {
	delete(b.asked, at.req.ID)
	at.w.asked = slices.DeleteFunc(at.w.asked, func(o *attempt) bool { return o == at })
}

// leave gives claims up in the background.
func (b *inboxes) leave(claims ...driver.Claim) {
	if len(claims) > 0 {
		b.background(func(ctx context.Context) { b.giveUp(ctx, claims) })
	}
}

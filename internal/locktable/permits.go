package locktable

import (
	"cmp"
	"container/heap"
	"fmt"
	"strings"
	"time"

	"github.com/distlock/locker/driver"
)

// permits is a key with permits. A command costs the same whatever number of claims there is, but
// for the logarithm: what has ended is forgotten where its permits are needed, each claim once.
type permits struct {
	limit  int
	out    int
	claims map[string]*permit
	ends   ends
	bid    bid
}

// permit is a claim of permits.
type permit struct {
	driver.Claim
	since time.Time
	until time.Time
	at    int // in ends
}

// bid keeps permits free for the Locker that has waited longest.
type bid struct {
	claim string // of its last Request
	count int
	since time.Time
	heard time.Time
}

// locker returns the Locker that the id of a claim belongs to.
func locker(id string) string {
	who, _, _ := strings.Cut(id, ":")
	return who
}

// older returns what is kept free for another Locker that has waited since before since.
func (p *permits) older(who string, now, since time.Time) int {
	b := &p.bid
	if !b.alive(now) || locker(b.claim) == who || b.since.After(since) {
		return 0
	}
	return b.count
}

func (b *bid) alive(now time.Time) bool { return b.claim != "" && now.Sub(b.heard) < driver.BidTime }

// sweep forgets claims that have ended until at most enough permits are out.
func (p *permits) sweep(now time.Time, enough int) {
	for p.out > enough && len(p.ends) > 0 && !now.Before(p.ends[0].until) {
		p.drop(p.ends[0])
	}
}

func (p *permits) drop(c *permit) {
	heap.Remove(&p.ends, c.at)
	delete(p.claims, c.ID)
	p.out -= c.Permits
}

// alive reports whether permits are out, or kept free for somebody.
func (p *permits) alive(now time.Time) bool {
	p.sweep(now, 0)
	return p.out > 0 || p.bid.alive(now)
}

// permitsAt returns the permits of key, ended or not, or nil.
func (t *Table) permitsAt(key string) *permits {
	if l := t.Locks[key]; l != nil {
		return l.permits
	}
	return nil
}

// acquirePermits is Acquire for permits.
func (t *Table) acquirePermits(req driver.Request, now time.Time) driver.Answer {
	p := t.permitsAt(req.Key)
	if p == nil {
		if l := t.live(req.Key, now); l != nil {
			return driver.Answer{Remaining: l.Until().Sub(now), Owner: l.Owner}
		}
		p = &permits{limit: req.Limit, claims: map[string]*permit{}}
		t.Locks[req.Key] = &Lock{Since: now, permits: p}
	}
	var a driver.Answer
	if p.limit != req.Limit {
		a.Limit, p.limit = p.limit, req.Limit
	}
	who, since := locker(req.ID), now.Add(-req.Waited)
	held := p.claims[req.ID]
	if held == nil {
		ahead := p.older(who, now, since)
		if p.sweep(now, req.Limit-req.Permits-ahead); p.out+req.Permits+ahead > req.Limit {
			return t.refusePermits(p, req, ahead, now, a)
		}
		held = &permit{Claim: req.Claim, since: now}
		if req.Fencing {
			held.Token, a.Tokens = t.Token(req.Key, max(req.Tokens, 1))
		}
		held.until = now.Add(req.TTL)
		heap.Push(&p.ends, held)
		p.claims[req.ID] = held
		p.out += req.Permits
		if locker(p.bid.claim) == who {
			p.bid = bid{}
		}
	}
	p.extend(held, now)
	a.Granted, a.Token, a.Free = true, held.Token, max(req.Limit-p.out, 0)
	return a
}

// refusePermits notes the bid of a Request that waits, and refuses it.
func (t *Table) refusePermits(p *permits, req driver.Request, ahead int, now time.Time, a driver.Answer) driver.Answer {
	if ahead == 0 && req.Waits && (req.Permits > 1 || req.Waited >= driver.Patience) {
		p.bid = bid{req.ID, req.Permits, now.Add(-req.Waited), now}
		a.Bids = true
	}
	if len(p.ends) > 0 {
		a.Remaining = max(p.ends[0].until.Sub(now), 1)
	}
	if ahead > 0 && p.out+req.Permits <= req.Limit { // it waits for nothing but the bid
		left := p.bid.heard.Add(driver.BidTime).Sub(now)
		a.Remaining = min(cmp.Or(a.Remaining, left), left)
	}
	a.Free = max(req.Limit-p.out-ahead, 0)
	return a
}

// refuseLock reports whether permits refuse a lock, which bids for all of them.
func (t *Table) refuseLock(p *permits, req driver.Request, now time.Time) (driver.Answer, bool) {
	ahead := p.older(locker(req.ID), now, now.Add(-req.Waited))
	if p.out == 0 && ahead == 0 {
		return driver.Answer{}, false
	}
	req.Permits, req.Limit = driver.MaxPermits, driver.MaxPermits
	a := t.refusePermits(p, req, ahead, now, driver.Answer{})
	a.Free, a.Bids = 0, false // the Release of a lock ends no bid
	return a, true
}

func (p *permits) extend(c *permit, now time.Time) {
	if until := now.Add(c.TTL); until.After(c.until) {
		c.until = until
		heap.Fix(&p.ends, c.at)
	}
}

// heldPermits returns the permits of c and the key they are of, or nil: what has ended is not held,
// forgotten or not.
func (t *Table) heldPermits(c driver.Claim, now time.Time) (*permits, *permit) {
	p := t.permitsAt(c.Key)
	if p == nil {
		return nil, nil
	}
	held := p.claims[c.ID]
	if held == nil || !now.Before(held.until) {
		return nil, nil
	}
	return p, held
}

func (t *Table) renewPermits(c driver.Claim, now time.Time) error {
	p, held := t.heldPermits(c, now)
	if held == nil {
		return ErrLost
	}
	p.extend(held, now)
	return nil
}

func (t *Table) releasePermits(c driver.Claim, now time.Time) error {
	p, held := t.heldPermits(c, now)
	if held == nil {
		t.endBid(c, now)
		return ErrLost
	}
	p.drop(held)
	t.live(c.Key, now)
	t.wake(c.Key)
	return nil
}

// endBid ends the bid of c, if there is one.
func (t *Table) endBid(c driver.Claim, now time.Time) {
	if p := t.permitsAt(c.Key); p != nil && p.bid.claim == c.ID {
		p.bid = bid{}
		t.live(c.Key, now)
		t.wake(c.Key)
	}
}

// Permits is that of a [driver.PermitKeeper].
func (t *Table) Permits(key string) (out, limit int, err error) {
	switch l := t.Live(key); {
	case l == nil:
		return 0, 0, nil
	case l.permits == nil:
		return 0, 0, fmt.Errorf("%w: the key is held as a lock", driver.ErrConflict)
	default:
		return l.permits.out, l.permits.limit, nil
	}
}

// PermitClaims returns what a [driver.PermitInspector] goes through, in no order.
func (t *Table) PermitClaims(key string) (all []driver.Holder) {
	now := time.Now()
	l := t.live(key, now)
	if l == nil || l.permits == nil {
		return nil
	}
	p := l.permits
	for _, c := range p.claims {
		all = append(all, driver.Holder{Key: key, Held: true, ID: c.ID, Owner: c.Owner, Token: c.Token, Since: c.since,
			Permits: c.Permits, Limit: p.limit, Remaining: c.until.Sub(now), Metadata: driver.MetadataOf(c.ID)})
	}
	return all
}

// ends are the claims of a key, a heap by their ends.
type ends []*permit

func (e ends) Len() int           { return len(e) }
func (e ends) Less(i, j int) bool { return e[i].until.Before(e[j].until) }
func (e ends) Swap(i, j int) {
	e[i], e[j] = e[j], e[i]
	e[i].at, e[j].at = i, j
}

// Push implements [heap.Interface].
func (e *ends) Push(c any) {
	p := c.(*permit)
	p.at = len(*e)
	*e = append(*e, p)
}

// Pop implements [heap.Interface].
func (e *ends) Pop() any {
	last := len(*e) - 1
	c := (*e)[last]
	(*e)[last] = nil
	*e = (*e)[:last]
	return c
}

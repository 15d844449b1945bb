// Package locktable keeps locks in memory and carries out a driver's commands on them.
// strategy/memory uses it, and so do the stores that tests put faults around.
package locktable

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/distlock/locker/driver"
	"github.com/distlock/locker/internal/wake"
)

// Table holds the locks of a store, and those who watch them. Its methods need Mu.
type Table struct {
	Mu      sync.Mutex
	Locks   map[string]*Lock // those that have ended may be there for a while
	Watches map[string]map[*Watch]struct{}

	Token func(key string, n int) (first int64, got int) // reserves n new ones, or fewer
	Joins bool                                           // another claim of the holder's owner is let in
	Deaf  func(*Watch) bool                              // says which watches a release does not signal; nil: it signals all
}

// Lock is a key that is held.
type Lock struct {
	Owner  string
	Token  int64 // 0 without fencing
	Since  time.Time
	Claims []*Claim

	permits *permits // nil: it is a lock
}

// Claim is a process's share of a lock.
type Claim struct {
	ID    string
	Holds int
	Until time.Time
}

// Watch is a channel on which releases of a key are signalled. It implements
// [driver.Watch].
type Watch struct {
	wake.Signal
	Key   string
	By    any // the driver that opened it, where that matters
	t     *Table
	ended bool
}

// New returns a Table without locks.
func New(token func(key string, n int) (first int64, got int)) *Table {
	return &Table{Locks: map[string]*Lock{}, Watches: map[string]map[*Watch]struct{}{}, Token: token}
}

// Claim returns the lock's claim of that id, or nil.
func (l *Lock) Claim(id string) *Claim {
	for _, c := range l.Claims {
		if c.ID == id {
			return c
		}
	}
	return nil
}

// Until is when the last claim ends.
func (l *Lock) Until() (end time.Time) {
	for _, c := range l.Claims {
		if c.Until.After(end) {
			end = c.Until
		}
	}
	return end
}

// Extend makes the claim last for ttl at least.
func (c *Claim) Extend(ttl time.Duration) { c.extend(time.Now(), ttl) }

func (c *Claim) extend(now time.Time, ttl time.Duration) {
	if until := now.Add(ttl); until.After(c.Until) {
		c.Until = until
	}
}

// Live returns the lock at key, or nil, and forgets what has ended of it. That signals
// nothing, as in Redis: a refusal says how long to wait.
func (t *Table) Live(key string) *Lock { return t.live(key, time.Now()) }

// A command looks at the clock once: what it says is left of a live lock is more than 0.
func (t *Table) live(key string, now time.Time) *Lock {
	l := t.Locks[key]
	if l == nil {
		return nil
	}
	if l.permits != nil {
		if !l.permits.alive(now) {
			delete(t.Locks, key)
			return nil
		}
		return l
	}
	l.Claims = slices.DeleteFunc(l.Claims, func(c *Claim) bool { return !now.Before(c.Until) })
	if len(l.Claims) == 0 {
		delete(t.Locks, key)
		return nil
	}
	return l
}

// Sweep forgets all that has ended.
func (t *Table) Sweep() {
	now := time.Now()
	for key := range t.Locks {
		t.live(key, now)
	}
}

// Held returns the claim that c holds, and the lock that it is part of, or nil.
func (t *Table) Held(c driver.Claim) (*Lock, *Claim) {
	if l := t.Live(c.Key); l != nil {
		if held := l.Claim(c.ID); held != nil {
			return l, held
		}
	}
	return nil, nil
}

// Put makes id and its owner the only holder of key.
func (t *Table) Put(key, owner, id string, token int64, ttl time.Duration) *Lock {
	now := time.Now()
	l := &Lock{Owner: owner, Token: token, Since: now, Claims: []*Claim{{ID: id, Holds: 1, Until: now.Add(ttl)}}}
	t.Locks[key] = l
	return l
}

// Acquire is that of a [driver.Driver].
func (t *Table) Acquire(req driver.Request) driver.Answer {
	now := time.Now()
	if req.Limit > 0 {
		return t.acquirePermits(req, now)
	}
	l, a := t.live(req.Key, now), driver.Answer{Granted: true}
	if l != nil && l.permits != nil {
		if refusal, refused := t.refuseLock(l.permits, req, now); refused {
			return refusal
		}
		l = nil
	}
	switch {
	case l == nil:
		l = t.Put(req.Key, req.Owner, req.ID, 0, req.TTL)
		a.Tokens = req.Tokens
	case l.Claim(req.ID) != nil:
		l.Claim(req.ID).extend(now, req.TTL)
	case t.Joins && l.Owner == req.Owner:
		l.Claims = append(l.Claims, &Claim{ID: req.ID, Holds: 1, Until: now.Add(req.TTL)})
	default:
		return driver.Answer{Remaining: l.Until().Sub(now), Owner: l.Owner}
	}
	if !req.Fencing {
		a.Tokens = 0
		return a
	}
	if l.Token == 0 {
		l.Token, a.Tokens = t.Token(req.Key, max(a.Tokens, 1))
	}
	a.Token = l.Token
	return a
}

// ErrLost is the error of commands whose claim does not hold the key.
var ErrLost = fmt.Errorf("the claim does not hold the key: %w", driver.ErrLost)

// Renew is that of a [driver.Driver], for one claim.
func (t *Table) Renew(c driver.Claim) error {
	if c.Limit > 0 {
		return t.renewPermits(c, time.Now())
	}
	_, held := t.Held(c)
	if held == nil {
		return ErrLost
	}
	held.Extend(c.TTL)
	return nil
}

// SetHolds is that of a [driver.HoldCounter].
func (t *Table) SetHolds(c driver.Claim, n int) error {
	_, held := t.Held(c)
	if held == nil {
		return ErrLost
	}
	held.Holds = n
	return nil
}

// Release is that of a [driver.Driver].
func (t *Table) Release(c driver.Claim) error {
	if c.Limit > 0 {
		return t.releasePermits(c, time.Now())
	}
	l, held := t.Held(c)
	if held == nil {
		return ErrLost
	}
	if l.Claims = slices.DeleteFunc(l.Claims, func(c *Claim) bool { return c == held }); len(l.Claims) == 0 {
		t.Drop(c.Key)
	}
	return nil
}

// Drop frees key, and wakes those who watch it.
func (t *Table) Drop(key string) {
	delete(t.Locks, key)
	t.wake(key)
}

// wake signals those who watch key, but for the deaf.
func (t *Table) wake(key string) {
	for w := range t.Watches[key] {
		if t.Deaf == nil || !t.Deaf(w) {
			w.signal()
		}
	}
}

// Signal wakes those who watch key, whatever Deaf says.
func (t *Table) Signal(key string) {
	for w := range t.Watches[key] {
		w.signal()
	}
}

func (w *Watch) signal() {
	if !w.ended {
		w.Send()
	}
}

// Inspect returns the Holder that a [driver.Inspector] returns, without the strategy's name. Its
// ID is the last claim's.
func (t *Table) Inspect(key string) driver.Holder {
	h := driver.Holder{Key: key, Waiting: len(t.Watches[key])}
	now := time.Now()
	l := t.live(key, now)
	if l == nil {
		return h
	}
	if p := l.permits; p != nil {
		h.Held, h.Permits, h.Limit, h.Since = p.out > 0, p.out, p.limit, l.Since
		for _, c := range p.claims {
			h.Remaining, h.Token = max(h.Remaining, c.until.Sub(now)), max(h.Token, c.Token)
		}
		return h
	}
	h.Held, h.Owner, h.Token, h.Since, h.Remaining = true, l.Owner, l.Token, l.Since, l.Until().Sub(now)
	for _, c := range l.Claims {
		h.ID, h.Holds = c.ID, h.Holds+c.Holds
	}
	h.Metadata = driver.MetadataOf(h.ID)
	return h
}

// Matching returns the keys that are held and match a pattern, in ascending order.
func (t *Table) Matching(pattern string) ([]string, error) {
	t.Sweep()
	keys, glob := make([]string, 0, len(t.Locks)), noSlash.Replace(pattern)
	if _, err := path.Match(glob, ""); err != nil { // whatever is held
		return nil, fmt.Errorf("%w: the pattern %q: %w", driver.ErrInvalid, pattern, err)
	}
	for key := range t.Locks {
		// For path.Match no * is a slash.
		if matches, _ := path.Match(glob, noSlash.Replace(key)); matches {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys, nil
}

var noSlash = strings.NewReplacer("/", "\x00")

// Break is that of a [driver.Inspector].
func (t *Table) Break(h driver.Holder) error {
	if t.permitsAt(h.Key) != nil {
		return t.releasePermits(driver.Claim{Key: h.Key, ID: h.ID}, time.Now())
	}
	if _, held := t.Held(driver.Claim{Key: h.Key, ID: h.ID}); held == nil {
		return ErrLost
	}
	t.Drop(h.Key)
	return nil
}

// Watch watches key.
func (t *Table) Watch(key string, by any) *Watch {
	w := &Watch{Key: key, By: by, t: t, Signal: wake.New()}
	if t.Watches[key] == nil {
		t.Watches[key] = map[*Watch]struct{}{}
	}
	t.Watches[key][w] = struct{}{}
	return w
}

// Close implements [driver.Watch]. It does not need Mu.
func (w *Watch) Close() {
	w.t.Mu.Lock()
	defer w.t.Mu.Unlock()
	w.Forget()
}

// Forget is Close for callers that have Mu.
func (w *Watch) Forget() {
	if delete(w.t.Watches[w.Key], w); len(w.t.Watches[w.Key]) == 0 {
		delete(w.t.Watches, w.Key)
	}
}

// End ends all watches as a server that goes away does: their channels are closed.
func (t *Table) End() {
	for _, ws := range t.Watches {
		for w := range ws {
			if !w.ended {
				w.ended = true
				close(w.Signal)
			}
		}
	}
}

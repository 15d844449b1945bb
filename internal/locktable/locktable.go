// Package locktable is what a store in memory knows of locks, and what the commands of a
// driver do to that: of strategy/memory, and of the stores that tests put faults around.
package locktable

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/distlock/locker/driver"
)

// Table has the locks of a store, and those who watch them. Its methods need Mu.
type Table struct {
	Mu      sync.Mutex
	Locks   map[string]*Lock // those that have ended may be there for a while
	Watches map[string]map[*Watch]struct{}

	Token func(key string, n int) int64 // returns the first of n new ones
	Joins bool                          // another claim of the holder's owner is let in
	Deaf  func(*Watch) bool             // says which watches a release does not signal; nil: none
}

// Lock is a key that is held.
type Lock struct {
	Owner  string
	Token  int64 // 0 without fencing
	Since  time.Time
	Claims []*Claim
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
	Key string
	By  any // that it belongs to
	t   *Table
	c   chan struct{}
}

// New returns a Table without locks.
func New(token func(key string, n int) int64) *Table {
	return &Table{Locks: map[string]*Lock{}, Watches: map[string]map[*Watch]struct{}{}, Token: token}
}

// Claim is the lock's claim of that id, or nil.
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
func (c *Claim) Extend(ttl time.Duration) {
	if until := time.Now().Add(ttl); until.After(c.Until) {
		c.Until = until
	}
}

// Live returns the lock at key, or nil, and forgets what has ended of it.
func (t *Table) Live(key string) *Lock {
	l := t.Locks[key]
	if l == nil {
		return nil
	}
	now := time.Now()
	l.Claims = slices.DeleteFunc(l.Claims, func(c *Claim) bool { return !now.Before(c.Until) })
	if len(l.Claims) == 0 {
		delete(t.Locks, key)
		return nil
	}
	return l
}

// Sweep forgets all that has ended.
func (t *Table) Sweep() {
	for key := range t.Locks {
		t.Live(key)
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
	l := &Lock{Owner: owner, Token: token, Since: time.Now()}
	l.add(id).Extend(ttl)
	t.Locks[key] = l
	return l
}

func (l *Lock) add(id string) *Claim {
	c := &Claim{ID: id, Holds: 1}
	l.Claims = append(l.Claims, c)
	return c
}

// Acquire is that of a [driver.Driver].
func (t *Table) Acquire(req driver.Request) driver.Answer {
	l, a := t.Live(req.Key), driver.Answer{Granted: true}
	switch {
	case l == nil:
		var token int64
		if req.Fencing {
			token, a.Tokens = t.Token(req.Key, max(req.Tokens, 1)), req.Tokens
		}
		l = t.Put(req.Key, req.Owner, req.ID, token, req.TTL)
	case l.Claim(req.ID) != nil:
		l.Claim(req.ID).Extend(req.TTL)
	case t.Joins && l.Owner == req.Owner:
		l.add(req.ID).Extend(req.TTL)
	default:
		return driver.Answer{Remaining: time.Until(l.Until()), Owner: l.Owner}
	}
	if req.Fencing {
		a.Token = l.Token
	}
	return a
}

// ErrLost is the error of commands whose claim does not hold the key.
var ErrLost = fmt.Errorf("the claim does not hold the key: %w", driver.ErrLost)

// Renew is that of a [driver.Driver], for one claim.
func (t *Table) Renew(c driver.Claim) error {
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
	t.Signal(key)
}

// Signal wakes those who watch key.
func (t *Table) Signal(key string) {
	for w := range t.Watches[key] {
		if t.Deaf != nil && t.Deaf(w) {
			continue
		}
		select {
		case w.c <- struct{}{}:
		default: // one is waiting there already
		}
	}
}

// Inspect is that of a [driver.Inspector], but for the strategy's name.
func (t *Table) Inspect(key string) driver.Holder {
	h := driver.Holder{Key: key, Waiting: len(t.Watches[key])}
	l := t.Live(key)
	if l == nil {
		return h
	}
	h.Held, h.Owner, h.Token, h.Since, h.Remaining = true, l.Owner, l.Token, l.Since, time.Until(l.Until())
	for _, c := range l.Claims {
		h.ID, h.Holds = c.ID, h.Holds+c.Holds
	}
	h.Metadata = driver.MetadataOf(h.ID)
	return h
}

// Matching are the keys that are held and match a pattern, in ascending order.
func (t *Table) Matching(pattern string) (keys []string, err error) {
	t.Sweep()
	for key := range t.Locks {
		// For path.Match no * is a slash.
		matches, err := path.Match(noSlash.Replace(pattern), noSlash.Replace(key))
		if err != nil {
			return nil, fmt.Errorf("%w: the pattern %q: %w", driver.ErrInvalid, pattern, err)
		}
		if matches {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys, nil
}

var noSlash = strings.NewReplacer("/", "\x00")

// Break is that of a [driver.Inspector].
func (t *Table) Break(h driver.Holder) error {
	if _, held := t.Held(driver.Claim{Key: h.Key, ID: h.ID}); held == nil {
		return ErrLost
	}
	t.Drop(h.Key)
	return nil
}

// Watch watches key.
func (t *Table) Watch(key string, by any) *Watch {
	w := &Watch{key, by, t, make(chan struct{}, 1)}
	if t.Watches[key] == nil {
		t.Watches[key] = map[*Watch]struct{}{}
	}
	t.Watches[key][w] = struct{}{}
	return w
}

// C implements [driver.Watch].
func (w *Watch) C() <-chan struct{} { return w.c }

// Close implements [driver.Watch]. It does not need Mu.
func (w *Watch) Close() {
	w.t.Mu.Lock()
	defer w.t.Mu.Unlock()
	w.t.forget(w)
}

// End ends all watches as a server that goes away does: their channels are closed.
func (t *Table) End() {
	for _, ws := range t.Watches {
		for w := range ws {
			t.forget(w)
			close(w.c)
		}
	}
}

func (t *Table) forget(w *Watch) {
	if delete(t.Watches[w.Key], w); len(t.Watches[w.Key]) == 0 {
		delete(t.Watches, w.Key)
	}
}

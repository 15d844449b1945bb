package locker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/distlock/locker/driver"
	"github.com/distlock/locker/internal/retry"
)

// Permits in the engine. A claim of permits differs from the claim of a lock in this:
//
//   - A process may have several claims of a key. They stand in keyState.permits, and none is the
//     current one.
//   - Several attempts may be under way at once, until the store refuses one: so n callers
//     that come to n free permits need one round trip, and not n in a row. After a refusal
//     only the first waiter asks.
//   - Unlock gives the claim to a certain waiter, and does not offer it to the next one: offers of several
//     claims to several waiters would need a list of claims, and of waiters that are about to take one.
//   - The store does not count their holds.

// capacity has the permits that a call asks for, and how; its zero value is that of a lock.
type capacity struct {
	permits, limit int
	alone          bool      // nobody joins its claim, whatever owner is named
	what           string    // what it does, for errors
	others         *sync.Map // the limits of other processes that were logged
}

const (
	firstRoom = 16  // attempts for permits that are under way at once, before the store has answered
	mostRoom  = 128 // after a grant
)

// withCapacity makes a Lock ask for permits. It goes through a [Wrapper] as the caller's options do.
func withCapacity(of capacity) LockOption {
	return lockOption(func(c *callSettings) { c.capacity = of })
}

// keepsPermits returns an error unless e's driver keeps permits.
func (e *Client) keepsPermits(who string) error {
	if _, ok := e.driver.(driver.PermitKeeper); !ok {
		return fmt.Errorf("%w: %w", invalid("%s: %s keeps no permits; want a driver.PermitKeeper, as memory, setnx, hashreentrant, blpop, postgres, mysql and etcd are", who, e.name), errors.ErrUnsupported)
	}
	return nil
}

// logLimit logs a limit that another process has named for the key, once for each limit.
func (c *call) logLimit(other int) {
	if c.others == nil {
		return
	}
	if _, before := c.others.LoadOrStore(other, true); !before {
		c.e.log.Warn("processes name different numbers of permits; the newest number counts", "strategy", c.e.name, "key", c.e.userKey(c.key), "permits", c.limit, "elsewhere", other)
	}
}

var errPart = errors.New("this caller holds the key, or a part of it, and would wait for itself")

func (c *call) failPart() error {
	return c.fail(ErrInvalid, errPart, "unlock what it holds first")
}

// mayJoin reports whether what the call asks for is a part of cl.
func (c *call) mayJoin(cl *claim) bool {
	return (c.limit > 0) == (cl.Limit > 0) && c.permits <= cl.Permits
}

// outerPermit does what outer does, where the call or l is about permits. l is the lease on the key that the
// caller's context carries, or nil.
func (c *call) outerPermit(l *Lease) (*Lease, error) {
	switch {
	case l == nil || c.alone && l.claim.Limit > 0:
		return nil, nil
	case !c.mayJoin(l.claim):
		return nil, c.failPart()
	}
	return l, nil
}

// isRefused reports whether the call waits because the key is taken, and not for its turn
// to ask. It needs the mutex.
func (c *call) isRefused() bool { return c.limit == 0 || c.ks.full || c.ks.current != nil }

// hasRoom reports whether c may make an attempt for permits beside the attempts under way. It may not while an
// earlier attempt asks for more permits: the store could refuse the earlier attempt, and grant c's.
func (q *queue) hasRoom(c *call) bool {
	most := cmp.Or(q.room, firstRoom)
	if q.full {
		most = 1
	}
	for w := q.head; w != nil && w != c; w = w.next {
		if w.asking && (w.limit == 0 || w.permits > c.permits) {
			return false
		}
	}
	return q.attempts < most
}

// hold adds a claim of permits that by was granted; free is how many permits the store has left.
func (ks *keyState) hold(c *claim, free int, by *call) {
	if ks.permits == nil {
		ks.permits = make(map[*claim]struct{})
	}
	ks.permits[c] = struct{}{}
	// No more attempts than there is room for: later waiters could pass a waiter that is refused, and a TryLock
	// passes one that asks for more than is left.
	ks.full, ks.room = free < c.Permits || ks.lacks(free, by), int32(max(1, min(free/c.Permits, mostRoom)))
}

// lacks reports whether the first waiter beside by asks for more than the free permits.
func (q *queue) lacks(free int, by *call) bool {
	for w := q.head; w != nil; w = w.next {
		if w != by && w.given == nil {
			return w.limit == 0 || w.permits > free
		}
	}
	return false
}

// drop removes a claim, and reports whether the key had it.
func (ks *keyState) drop(c *claim) bool {
	if ks.current == c {
		ks.current = nil
		return true
	}
	_, ok := ks.permits[c]
	delete(ks.permits, c)
	return ok
}

// loseOthers loses the claims that the store cannot have any more, since it has granted c, which
// excludes them. It returns false if one of them was granted later than c.
func (ks *keyState) loseOthers(c *claim) bool {
	if c.Permits < c.Limit {
		return true
	}
	var ended aftermath
	for other := range ks.permits {
		if other.token > c.token {
			ended.run()
			return false
		}
		ended = append(ended, other.lose(lossDenied, ErrDenied)...)
	}
	ended.run()
	return true
}

// claim returns the claim of that id, or nil; one whose end has come is lost first.
func (ks *keyState) claim(id string) *claim {
	if c := ks.present(); c != nil && c.ID == id {
		return c
	}
	for c := range ks.permits {
		if c.ID == id {
			c.expire().run()
			return c
		}
	}
	return nil
}

// permitsOf returns a lease of the owner's, whom ContextWithOwner has named, on permits; nil if
// there is none.
func (ks *keyState) permitsOf(owner string) *Lease {
	for c := range ks.permits {
		if c.named && c.Owner == owner {
			if c.expire().run(); c.state == claimHeld {
				return c.leases
			}
		}
	}
	return nil
}

// reads reports whether the claim is a reader's: the loss of one reader's lease is no other reader's.
func (c *claim) reads() bool { return c.Owner == readers || c.Permits < c.Limit }

// heir returns the waiter that gets permits that come free: the first that was given none, and whose attempt,
// if it makes one, is not late. It returns nil if there is none.
func (q *queue) heir(now time.Duration) *call {
	if q == nil {
		return nil
	}
	for w := q.head; w != nil; w = w.next {
		if w.given == nil && !w.isLate(now) {
			return w
		}
	}
	return nil
}

func (w *waiter) isLate(now time.Duration) bool { return w.asking && now-w.asked >= overdueAfter }

// give gives the claim, which has no lease, to w. If w is granted another claim, or leaves, w passes
// this claim on. If w's answer is late, the timer passes it on. give needs the mutex.
func (c *claim) give(w *call) {
	w.given = c
	w.signal()
	if w.asking {
		c.s.setTimer(w.ks, w.asked+overdueAfter-c.e.sched.Now())
	}
}

// take returns the claim that the call was given; nil if it has been lost. It needs the mutex.
func (c *call) take() *claim {
	cl := c.given
	c.given = nil
	if cl.expire().run(); !cl.offered() {
		return nil
	}
	return cl
}

// passOn passes the claim that the call was given to the next waiter. It returns the claim if
// there is none, for freeUnclaimed.
func (c *call) passOn() *claim {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	if c.given == nil {
		return nil
	}
	return c.ks.regive(c)
}

// endBid lets the driver know, in the background, that nobody waits any more for what it keeps free: the
// call has given up, or was given another caller's permits. A later waiter of this Locker makes a bid of its own.
func (c *call) endBid() {
	cl := driver.Claim{Key: c.key, ID: c.bid, Owner: c.bid, TTL: c.ttl, Permits: c.permits, Limit: c.limit}
	c.bid = ""
	c.e.later(c.key, &retry.Task{
		ID:    "end bid " + cl.ID,
		Until: c.e.sched.Now() + driver.BidTime,
		Run: func(ctx context.Context) error {
			if err := c.e.driver.Release(ctx, cl); !isLost(err) {
				return err
			}
			return nil
		},
		Fails: func(error) {}, // it ends after BidTime
	})
}

// passOnLate passes on what was given to waiters whose attempts are late. It returns the claims for
// which there is no other waiter.
func (ks *keyState) passOnLate() (unclaimed []*claim) {
	if ks.queue == nil {
		return nil
	}
	for w := ks.head; w != nil; w = w.next {
		if w.given != nil && w.isLate(w.e.sched.Now()) {
			unclaimed = append(unclaimed, ks.regive(w))
		}
	}
	return unclaimed
}

// regive takes from w what it was given. It needs the mutex.
func (ks *keyState) regive(w *call) (unclaimed *claim) {
	c := w.take()
	if c == nil {
		return nil
	}
	if heir := ks.heir(c.e.sched.Now()); heir != nil && c.suits(heir) {
		c.give(heir)
		return nil
	}
	return c.giveUp()
}

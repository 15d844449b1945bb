package locker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/distlock/locker/driver"
	"github.com/distlock/locker/internal/bound"
)

// Lease is one caller's hold of a lock. It ends by Unlock, by LetExpire, or by loss: the
// store denies it, its Deadline passes before a renewal went through, a limit
// ([WithMaxHold], [WithMaxRenewals]) is reached, or the Locker is closed.
//
// Every method may be called from many goroutines. All but Key, Owner, Token and Deadline look at the clock
// first: a process that was frozen past its lease learns of the loss by its first call. A nil or zero Lease
// holds nothing: its methods fail with [ErrInvalid] or return zero values; its Lost is closed and its
// Context has ended.
type Lease struct {
	claim  *claim
	tenure *tenure

	// Guarded by the claim's mutex.
	state      leaseState
	last       bool          // its Unlock took the last lease off the claim
	lostBefore bool          // lost, before any Unlock
	next       *Lease        // of the claim
	lost       chan struct{} // made by the first call of Lost
	ctxs       leaseContexts
}

type leaseState uint8

const (
	leaseHeld      leaseState = iota // or lost: the claim knows
	leaseUnlocking                   // an Unlock is under way
	leaseLeft                        // Unlock returned ErrUnavailable and may be called again
	leaseDone                        // Unlock returned nil or ErrLost
)

var closedChan = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

func (l *Lease) zero() bool { return l == nil || l.claim == nil }

func errZeroLease(method string) error {
	return invalid("%s of a lease that no Lock returned; check the error of Lock first", method)
}

// Key returns the name given to Lock, without the Locker's prefix.
func (l *Lease) Key() string {
	if l.zero() {
		return ""
	}
	return l.claim.userKey()
}

// Owner returns who holds the lock: the name given by [ContextWithOwner], or else a name made up for
// this lock. Re-entry keeps it.
//
// A caller that gives this made-up name to ContextWithOwner shares the lock, if it uses the same
// Locker. A caller in another process shares the lock only with hashreentrant and blpop, and only
// if the lock cannot be handed over inside the holder's process (see [WithHandOver]): other
// processes do not know the owner of a lock that may be handed over. So name the owners of locks
// that processes are to share.
func (l *Lease) Owner() string {
	if l.zero() {
		return ""
	}
	return l.tenure.owner
}

// Token returns the fencing token: strictly greater than that of every earlier
// holder of the key. Hand it to the resource that the lock protects, and let the
// resource refuse a token that is smaller than one it has seen; that stops
// a holder that was paused past its lease. Package fence checks tokens in SQL, Redis and HTTP.
// Re-entry keeps the token. It is 0 under [WithoutFencing]. For the tokens of permits see [Semaphore], for those
// of readers [RWLock].
//
// A store that has lost its data still issues greater tokens, with three exceptions: its clock has gone back, too;
// the clocks of redlock's servers are far apart; or a process that keeps the lock ([WithSticky]) takes it again, for
// up to 1 s, with tokens smaller than those that other processes have been granted since.
func (l *Lease) Token() int64 {
	if l.zero() {
		return 0
	}
	return l.tenure.token
}

// Holds returns the re-entrant hold count: how many leases on this claim are
// not unlocked yet. It is 0 once the lock was released or lost.
func (l *Lease) Holds() int {
	if l.zero() {
		return 0
	}
	defer l.claim.lock().Unlock()
	if l.claim.state == claimLost || l.tenure != l.claim.tenure {
		return 0
	}
	return l.claim.holds()
}

// Nodes returns how many servers have the lock, and how many servers there are, for a strategy that
// keeps a lock on several servers (redlock). From the grant on, a majority has the lock. A moment
// later all servers that can be reached have it. Nodes asks none of them. With other strategies
// both numbers are 0.
func (l *Lease) Nodes() (have, of int) {
	if l.zero() {
		return 0, 0
	}
	counter, ok := l.claim.e.driver.(driver.NodeCounter)
	if !ok {
		return 0, 0
	}
	have, of = counter.Nodes(l.claim.Claim)
	if l.Err() != nil {
		have = 0
	}
	return have, of
}

// Deadline returns the time until which no other owner is granted the key, unless the store loses the key or somebody
// deletes it. Renewal moves the deadline. The TTL counts, on the local monotonic clock, from a time before the
// command that granted or last renewed the lease was sent. The deadline is earlier than the end of the TTL, by 1 % of
// the TTL plus 2 ms, as clocks may run at different speeds, and by [WithMargin]. Before its first renewal a lease may
// last for less than the TTL: with [WithSticky], or if a release of blpop granted it.
func (l *Lease) Deadline() time.Time {
	if l.zero() {
		return time.Time{}
	}
	l.claim.s.mu.Lock()
	defer l.claim.s.mu.Unlock()
	return l.claim.e.sched.Time(l.claim.deadline)
}

// Lost returns a channel that is closed when the lease is lost: at the Deadline at the latest, once the
// process runs. Unlock never closes it.
func (l *Lease) Lost() <-chan struct{} {
	if l.zero() {
		return closedChan
	}
	defer l.claim.lock().Unlock()
	if l.lost == nil {
		l.lost = make(chan struct{})
		if l.lostBefore {
			close(l.lost)
		}
	}
	return l.lost
}

// Err returns nil while the lease is held. After a loss the error matches [ErrLost] and has the
// cause. Once Unlock or LetExpire was called on a lease that was held, it matches
// [ErrNotHeld].
func (l *Lease) Err() error {
	if l.zero() {
		return errZeroLease("Err")
	}
	return l.held("lease on")
}

// Renew extends the lease to a full TTL from now, at the cost of one command.
// It is for leases taken [WithoutRenewal]; others renew by themselves. It fails
// with [ErrLost] when the lease is lost, with [ErrNotHeld] after Unlock, and
// with [ErrUnavailable] when no answer came, which leaves the lease as it was. It waits for 4 s at most.
func (l *Lease) Renew(ctx context.Context) error {
	switch {
	case l.zero():
		return errZeroLease("Renew")
	case ctx == nil:
		return invalid("Renew needs a context")
	}
	c := l.claim
	if err := l.held("renew"); err != nil {
		return err
	}
	if err := bound.End(ctx); err != nil {
		return l.fail("renew", ErrUnavailable, err, "")
	}
	c.s.enter()
	defer c.s.exit()
	cctx := bound.New(ctx, commandTimeout, c.e.life)
	defer cctx.Stop()
	sent := c.e.sched.Now()
	err := errNoAnswer
	c.e.driver.Renew(cctx, []driver.Claim{c.Claim}, func(_ int, e error) { err = e })
	c.renewed(ctx, sent, err, false)
	switch gone := l.held("renew"); {
	case err == nil || gone != nil:
		return gone
	case c.e.closing.Load(): // which is about to end the lease
		return &lossError{c.e.name, c.userKey(), ErrClosed}
	case isLost(err):
		return l.notHeld("renew") // unlocked meanwhile
	case bound.End(ctx) != nil:
		err = bound.End(ctx)
	}
	return l.fail("renew", ErrUnavailable, withoutContextErrorsBut(ctx, err), "the lease stays as it was unless the answer was lost")
}

// held returns nil while the lease is held, and otherwise why op is not possible.
func (l *Lease) held(op string) error {
	if cause := l.over(); cause == nil || isLost(cause) {
		return cause
	}
	return l.notHeld(op)
}

// over returns why the lease has ended, or nil. It looks at the clock first.
func (l *Lease) over() error {
	defer l.claim.lock().Unlock()
	return l.ended()
}

// ended returns why the lease has ended, or nil: the loss, also after an Unlock that followed
// it, or Canceled. It needs the mutex.
func (l *Lease) ended() error {
	switch {
	case l.lostBefore:
		return l.claim.outcome()
	case l.state != leaseHeld:
		return context.Canceled
	}
	return nil
}

// answers reports whether a Lock that asks with q re-enters l. A lost lease
// does: it makes that Lock fail instead of quietly taking the lock anew under a
// critical section that is no longer protected.
func (l *Lease) answers(q carried) bool {
	if q.e != l.claim.e || q.key != l.claim.Key || q.named && q.owner != l.tenure.owner {
		return false
	}
	l.claim.s.mu.Lock()
	defer l.claim.s.mu.Unlock()
	return l.state == leaseHeld
}

func (l *Lease) fail(op string, kind, why error, hint string) error {
	return &opError{strategy: l.claim.e.name, op: op, key: l.claim.userKey(), kind: kind, why: why, hint: hint}
}

func (l *Lease) notHeld(op string) error {
	return l.fail(op, ErrNotHeld, nil, "this lease was unlocked, or left by LetExpire, before")
}

// withoutContextErrorsBut returns withoutContextErrors(err), or err itself if ctx has ended.
func withoutContextErrorsBut(ctx context.Context, err error) error {
	if end := bound.End(ctx); end != nil && errors.Is(err, end) {
		return err
	}
	return withoutContextErrors(err)
}

// String names the key, the token and the state of the lease, for logs: held, lost or
// unlocked. Like [Lease.Err] it looks at the clock, and sends no command.
func (l *Lease) String() string {
	if l.zero() {
		return "no lease"
	}
	state := "held"
	switch err := l.Err(); {
	case errors.Is(err, ErrLost):
		state = "lost"
	case err != nil:
		state = "unlocked"
	}
	return fmt.Sprintf("lease of %s, token %d, %s", quoteKey(l.Key()), l.Token(), state)
}

package locker

import (
	"context"
	"errors"
	"time"
)

// Locker hands out leases on named locks. Make one with the New of a strategy
// package (strategy/setnx, strategy/hashreentrant, strategy/memory, ...) or,
// for a driver of your own, with [New]. It is safe for use by many goroutines;
// a process needs one per store.
//
// A key is 1 byte to 16 KiB of UTF-8. Every strategy accepts every such key.
type Locker interface {
	// Lock waits until the caller holds key, the wait given by [WithWait] is
	// over, or ctx is done. Within one Locker waiters for a key are served
	// first come, first served. ctx governs the wait only: the lease lives on
	// after it.
	//
	// Under the context of a lease (see [Lease.Context]) on the same key of the
	// same Locker, or for an owner named by [ContextWithOwner], Lock re-enters
	// at once; as many Unlocks as Locks give the lock back.
	//
	// It fails with [ErrNotAcquired] when the key stayed taken, with
	// [ErrUnavailable] when the store could not be used (transient trouble is
	// ridden out for max(TTL, 15 s)), with [ErrLost] when re-entering a lease
	// that is already lost, with [ErrConflict] when the key holds something that
	// is no lock, with [ErrInvalid] on misuse and with [ErrClosed] after Close.
	// An error that ctx brought about matches ctx's error as well.
	Lock(ctx context.Context, key string, opts ...LockOption) (*Lease, error)

	// TryLock makes one attempt and never waits, whatever WithWait says. While
	// this Locker itself holds key or queues for it, it fails without asking
	// the store.
	TryLock(ctx context.Context, key string, opts ...LockOption) (*Lease, error)

	// Close refuses new Locks and ends waiting ones with ErrClosed. Held leases
	// end (their Lost closes) but their keys are not deleted under sections
	// that may still run: their own Unlock, which still works, or the TTL frees
	// them. Close is idempotent, returns within 5 s and leaves nothing of the
	// Locker running. The client given to the constructor stays the caller's.
	Close() error
}

// Errors. Match them with [errors.Is]; what is returned wraps them with the
// strategy, the key and the cause.
var (
	// ErrNotAcquired: somebody else holds the key, and the caller did not want
	// to wait (longer).
	ErrNotAcquired = errors.New("lock not acquired")
	// ErrLost: the lease ended before it was unlocked. Somebody else may hold
	// the key by now.
	ErrLost = errors.New("lock lost")
	// ErrNotHeld: the lease was unlocked before.
	ErrNotHeld = errors.New("lock not held")
	// ErrUnavailable: the store could not be used, or its answer did not
	// arrive; whether the command took effect may be unknown.
	ErrUnavailable = errors.New("lock store unavailable")
	// ErrConflict: the key holds something that is not a lock. It is never
	// deleted.
	ErrConflict = errors.New("key is not a lock")
	// ErrInvalid: a bad key, option or argument.
	ErrInvalid = errors.New("invalid use")
	// ErrClosed: the Locker was closed.
	ErrClosed = errors.New("locker closed")
)

// Lease is one caller's hold of a lock. It ends by Unlock, or by loss: the
// store denies it, its Deadline passes before a renewal went through, a limit
// ([WithMaxHold], [WithMaxRenewals]) is reached, or the Locker is closed.
//
// Every method may be called from many goroutines, and each of them looks at
// the clock first: a process that was frozen past its lease is told so by the
// first question it asks.
type Lease struct {
	e     *engine
	claim *claim

	// Guarded by claim.mu.
	state    leaseState
	lost     chan struct{} // made by the first call of Lost
	ctxs     leaseContexts
	release  *releaseOp // the release under way or failed; nil before Unlock
	inUnlock bool       // an Unlock waits for release
	last     bool       // its Unlock took the last lease off the claim
}

// Key is the name given to Lock, without the Locker's prefix.
func (l *Lease) Key() string { return l.claim.userKey }

// Owner says who holds: the name given by [ContextWithOwner], or else one made
// up for this acquisition.
func (l *Lease) Owner() string { return l.claim.Owner }

// Token is the fencing token: strictly greater than that of every earlier
// holder of the key. Hand it to the resource the lock protects, and let the
// resource refuse whatever comes with a smaller one than it has seen; that stops
// a holder that was paused past its lease. Re-entry keeps the token. It is 0
// under [WithoutFencing].
func (l *Lease) Token() int64 { return l.claim.Token }

// Holds is the re-entrant hold count: how many leases on this acquisition are
// not unlocked yet. It is 0 once the lock was released or lost.
func (l *Lease) Holds() int { return l.claim.countHolds() }

// Deadline is the time until which nobody else is granted the key, unless the
// store loses it or is told to drop it. Renewal moves it. It is reckoned on the
// local monotonic clock from before the command that got the grant was sent,
// less 1 % of the TTL and 2 ms for clocks that run at different speeds.
func (l *Lease) Deadline() time.Time { return l.claim.deadline() }

// Lost returns a channel that is closed when the lease is lost. Unlock never
// closes it.
func (l *Lease) Lost() <-chan struct{} { return l.lostChan() }

// Context returns a child of parent that ends with the lease: on loss its
// cause ([context.Cause]) and its Err match [ErrLost], after Unlock they are
// [context.Canceled]. Lock on the lease's key under it re-enters. It takes no
// goroutine, and it lives until the lease or parent ends.
func (l *Lease) Context(parent context.Context) context.Context { return l.newContext(parent) }

// Renew extends the lease to a full TTL from now, at the cost of one command.
// It is for leases taken [WithoutRenewal]; others renew by themselves. It fails
// with [ErrLost] when the lease is lost, with [ErrNotHeld] after Unlock, and
// with [ErrUnavailable] when no answer came, which leaves the lease as it was.
func (l *Lease) Renew(ctx context.Context) error { return l.renew(ctx) }

// Unlock gives the lease back; the last lease of an acquisition frees the key.
// It does not need ctx alive: under a live one it returns by ctx's end at the
// latest while the release goes on in the background, under a dead one it
// takes up to 5 s.
//
// It returns nil when the hold was given back, [ErrLost] when there was none
// any more (somebody else may have been inside), [ErrNotHeld] when the lease was
// unlocked before, and [ErrUnavailable] when no answer came: then it may be
// called again, and the TTL frees the key in any case.
func (l *Lease) Unlock(ctx context.Context) error { return l.unlock(ctx) }

// Do runs fn while holding key. The context given to fn ends when the lease is
// lost, with a cause that matches [ErrLost]; re-entry works under it. The lock
// is released whatever fn does, panic included, and whether or not ctx is still
// alive. The error is fn's, joined with that of Unlock if it failed.
func Do(ctx context.Context, l Locker, key string, fn func(ctx context.Context) error, opts ...LockOption) (err error) {
	if ctx == nil || l == nil || fn == nil {
		return invalid("Do needs a context, a Locker and a function; one of them is nil")
	}
	lease, err := l.Lock(ctx, key, opts...)
	if err != nil {
		return err
	}
	defer func() {
		if uerr := lease.Unlock(ctx); uerr != nil {
			err = errors.Join(err, uerr)
		}
	}()
	return fn(lease.Context(ctx))
}

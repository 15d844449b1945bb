package locker

import (
	"context"
	"time"
)

// Observer receives the events of a Locker, for metrics and tracing.
//
// Events are delivered one at a time, in the order in which they happened, by a
// goroutine that does nothing else: an observer that is slow or blocks delays no
// lock, no renewal and no loss, and may call the Locker. Event.Time says when it
// happened. A panic is recovered and logged.
//
// While 1,000 events wait, further ones are dropped. Further renewals (Renewed, RenewFailed) are
// dropped while 500 events wait. The next event delivered says in Dropped how many were;
// [Client.Stats] has the sum. But until Close the end of a lock (Released, ReleaseFailed,
// LetExpire, Lost) is dropped if and only if its Acquired was. So at most 1,000 events wait, and
// one more for each lock held. Close waits half a second for their delivery, and up to 5 s in all
// while the observer accepts events; then it drops the rest, ends included.
//
// ctx has the values of the context given to the Lock, TryLock, Renew or Unlock that brought the
// event about, so that it can be traced; for what the Locker did by itself (such as automatic
// renewals and most losses) and for LetExpire ctx is empty. ctx never ends.
//
// See also [StatsObserver].
type Observer interface {
	Observe(ctx context.Context, e Event)
}

// ObserverFunc makes an Observer of a function.
type ObserverFunc func(ctx context.Context, e Event)

// Observe calls f.
func (f ObserverFunc) Observe(ctx context.Context, e Event) { f(ctx, e) }

// Event is one thing that happened.
type Event struct {
	Kind     EventKind
	Time     time.Time // when it happened
	Strategy string
	Key      string // without prefix
	Owner    string // as named by ContextWithOwner, else ""
	Token    int64  // of the grant; 0 before a grant, and without fencing
	// Duration is the wait (Acquired, NotAcquired), the wait so far (Waiting), how long the lock was
	// held (Released, ReleaseFailed, LetExpire, Lost) or has been held so far (AtRisk,
	// ReleaseRequested), or how long the command took (Renewed, RenewFailed).
	Duration time.Duration
	Err      error // of NotAcquired, RenewFailed, Lost, ReleaseFailed and AtRisk, and of Node unless the server works again
	Dropped  int   // events dropped before this one
	// HandOver marks a Released and the Acquired after it that were a hand-over
	// inside the process; see [WithHandOver].
	HandOver bool
	// Kept marks a Released after which the process has kept the lock for its next Lock, and the Acquired of
	// that Lock; see [WithSticky].
	Kept bool
	// Node names the server that an EventNode is about.
	Node string

	again bool // RenewFailed, and not the first since the last Renewed
}

// EventKind is the kind of an [Event].
type EventKind int

// The kinds. Valid calls that do not re-enter = Acquired + NotAcquired, and each Acquired ends with one of
// Released, ReleaseFailed, LetExpire and Lost. (Where Unlock is called again after ReleaseFailed
// and frees the key, that is no event.) A Lock that waits has one Waiting before its
// end. Re-entry and inner Unlocks are no events of their own, also where the Lock of a
// named owner has waited before it could re-enter.
const (
	EventAcquired         EventKind = iota + 1 // a lock was granted
	EventNotAcquired                           // Lock or TryLock failed; Err says why
	EventWaiting                               // Lock has its place in the queue and begins to wait
	EventReleased                              // the key was freed by its holder
	EventReleaseFailed                         // the key is left to its TTL, as far as known
	EventRenewed                               // a held lease was extended, by itself or by Renew
	EventRenewFailed                           // a renewal failed; automatic ones are tried again while the lease lasts
	EventLost                                  // a lease ended before it was unlocked
	EventNode                                  // one of several servers is in trouble, which Err describes, or works again; without a key
	EventLetExpire                             // the holder has left the key to its TTL by [Lease.LetExpire]
	EventAtRisk                                // renewals of a held lease have failed for long, see [Lease.AtRisk]; once at most
	EventReleaseRequested                      // somebody asks the holder for the release, see [Client.RequestRelease]; once at most
)

var eventNames = [...]string{
	EventAcquired:      "acquired",
	EventNotAcquired:   "not acquired",
	EventWaiting:       "waiting",
	EventReleased:      "released",
	EventReleaseFailed: "release failed",
	EventRenewed:       "renewed",
	EventRenewFailed:   "renew failed",
	EventLost:          "lost",
	EventNode:          "node",
	EventLetExpire:     "let expire",
	EventAtRisk:        "at risk",

	EventReleaseRequested: "release requested",
}

func (k EventKind) String() string {
	if k < EventAcquired || int(k) >= len(eventNames) {
		return "unknown"
	}
	return eventNames[k]
}

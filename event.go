package locker

import "time"

// Observer is told what happens, for metrics and tracing.
//
// Events of a caller's own doing are delivered before its Lock or Unlock returns
// (unless its context ends first), outside all locks. Renewals and losses are delivered by a
// goroutine beside them; when an observer is so slow that a thousand of these
// wait, further ones are dropped and the next delivered Event's Dropped says how
// many. A panic is recovered and logged. Close waits for what is being delivered, so
// an observer does not call it.
type Observer interface {
	Observe(Event)
}

// ObserverFunc makes an Observer of a function.
type ObserverFunc func(Event)

// Observe calls f.
func (f ObserverFunc) Observe(e Event) { f(e) }

// Event is one thing that happened.
type Event struct {
	Kind     EventKind
	Strategy string
	Key      string // without prefix
	Owner    string
	Token    int64
	// Duration is the wait (Acquired, NotAcquired), how long the lock was held
	// (Released, Lost) or how long the command took (Renewed, RenewFailed).
	Duration time.Duration
	Err      error // NotAcquired, RenewFailed, Lost, ReleaseFailed
	Dropped  int   // events dropped before this one
}

// EventKind says what happened.
type EventKind int

// The kinds. Re-entry and inner Unlocks are no events of their own: attempts =
// Acquired + NotAcquired, and each Acquired ends with Released, ReleaseFailed or
// Lost (and once more with Released if a failed Unlock is called again).
const (
	EventAcquired      EventKind = iota + 1 // a lock was granted
	EventNotAcquired                        // Lock or TryLock failed; Err says why
	EventReleased                           // the key was freed by its holder
	EventReleaseFailed                      // the key is left to its TTL, as far as known
	EventRenewed                            // a held lease was extended
	EventRenewFailed                        // a renewal failed; it is tried again while the lease lasts
	EventLost                               // a lease ended before it was unlocked
)

func (k EventKind) String() string {
	switch k {
	case EventAcquired:
		return "acquired"
	case EventNotAcquired:
		return "not acquired"
	case EventReleased:
		return "released"
	case EventReleaseFailed:
		return "release failed"
	case EventRenewed:
		return "renewed"
	case EventRenewFailed:
		return "renew failed"
	case EventLost:
		return "lost"
	}
	return "unknown"
}

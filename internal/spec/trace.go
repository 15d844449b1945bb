package spec

import (
	"fmt"
	"time"
)

// A [Trace] is the model of what can be seen from outside of the life of claims on one key: calls and their results.
// Each operation that a run has recorded is a step of it, or the record shows something that the model of claims
// cannot do. (TestTraceFollowsClaims goes through both side by side.)

// Event is one recorded operation.
type Event struct {
	What     What
	At       time.Duration // on one clock for all processes
	Lease    uint64        // names the Lock that it belongs to
	Token    int64         // Granted, Reentered
	Deadline time.Duration // of the lease, as its holder knows it now; 0: not asked for
	TTL      time.Duration // Asks
	Since    time.Duration // with Deadline: the store had the lock then, or later
	// Excused reports whether a lock that the store had at a time, or later, may have been lost by now by design, as a
	// store loses it that forgets its data. It is for Granted; nil: none may.
	Excused func(since time.Duration) bool
}

// What is an operation, or its result.
type What uint8

// The operations.
const (
	Asks      What = iota // Lock or TryLock is called
	Granted               // it has returned a lease
	Refused               // it has returned an error
	Holds                 // the lease says that it is held
	Lost                  // it says that it is lost
	Reentered             // a re-entry was granted under the lease
	Unlocks               // Unlock is called
	Unlocked              // it has returned nil or ErrLost
	Failed                // it has returned ErrUnavailable: it may be called again
	Died                  // the process was killed
)

func (w What) String() string {
	return [...]string{"Lock", "granted", "refused", "held", "lost", "re-entered", "Unlock", "Unlock returned", "Unlock failed", "died"}[w]
}

// view holds what is known of a lease.
type view struct {
	stage    stage
	token    int64
	ttl      time.Duration
	since    time.Duration // the store had the lock then, or later
	deadline time.Duration
	robbed   bool          // it may have been lost by design when another lease was granted
	next     uint64        // the lease that was granted since, the first one; 0: none
	taken    time.Duration // when that was
}

type stage uint8

const (
	asked    stage = iota
	held           // as far as its holder knows
	lost           // the holder knows
	unlocked       // Unlock is under way, or has failed
)

// Trace takes the operations on one key, in the order of their times. A lease leaves it when it is over.
type Trace struct {
	leases   map[uint64]*view
	greatest int64 // token
}

// NewTrace returns a Trace of a key that nobody holds.
func NewTrace() *Trace { return &Trace{leases: map[uint64]*view{}} }

// Step takes an operation. It returns an error if that is no step from here.
func (t *Trace) Step(e Event) error {
	v := t.leases[e.Lease]
	if e.What == Asks {
		if v != nil {
			return t.wrong(e, "the lease is there already")
		}
		t.leases[e.Lease] = &view{ttl: e.TTL}
		return nil
	}
	if v == nil {
		return t.wrong(e, "there is no such lease: it was not asked for, or is over")
	}
	if err := t.follows(v, e); err != nil {
		return err
	}
	if e.What == Granted {
		return t.grant(v, e)
	}
	if err := t.moves(v, e); err != nil {
		return err
	}
	switch e.What {
	case Refused, Unlocked, Died:
		delete(t.leases, e.Lease)
	case Lost:
		v.stage = lost
	case Unlocks:
		v.stage = unlocked
	}
	return nil
}

// follows wants an operation to be possible in the stage that the lease is in.
func (t *Trace) follows(v *view, e Event) error {
	possible := map[What][]stage{
		Granted: {asked}, Refused: {asked}, Holds: {held}, Lost: {held, lost, unlocked}, Reentered: {held},
		Unlocks: {held, lost, unlocked}, Unlocked: {unlocked}, Failed: {unlocked}, Died: {asked, held, lost, unlocked},
	}
	for _, s := range possible[e.What] {
		if s == v.stage {
			if e.What == Holds && e.At >= max(e.Deadline, v.deadline) {
				return t.wrong(e, "its deadline was over %v before", e.At-max(e.Deadline, v.deadline))
			}
			if e.What == Reentered && e.Token != v.token {
				return t.wrong(e, "with token %d, and it has %d", e.Token, v.token)
			}
			return nil
		}
	}
	return t.wrong(e, "it is %v", v.stage)
}

// grant wants nobody else to hold, and the token to be the greatest. A grant whose lease was over when it
// was returned is none: its process was frozen on the way.
func (t *Trace) grant(v *view, e Event) error {
	v.stage, v.token, v.since, v.deadline = held, e.Token, e.Since, e.Deadline
	if e.Deadline > e.At+v.ttl {
		return t.wrong(e, "it lasts %v longer than its TTL of %v", e.Deadline-e.At-v.ttl, v.ttl)
	}
	if e.Deadline <= e.At {
		return nil
	}
	excused := func(x *view) bool { return e.Excused != nil && e.Excused(x.since) }
	for name, o := range t.leases {
		if o == v || o.stage != held {
			continue
		}
		switch {
		case e.Token < o.token && excused(v):
			v.robbed = true // granted before the loss, and told so only after it
		case excused(o):
			o.robbed = true
		case o.deadline > e.At:
			return t.wrong(e, "lease %d holds until %v", name, o.deadline)
		case o.next == 0:
			o.next, o.taken = e.Lease, e.At // it has ended, or a renewal of it was not recorded yet
		}
	}
	if e.Token <= t.greatest && !excused(v) {
		return t.wrong(e, "token %d after %d", e.Token, t.greatest)
	}
	t.greatest = max(t.greatest, e.Token)
	return nil
}

// moves wants the deadline to move by renewals only: forwards, to a TTL from now at most, not beyond the grant of
// another lease, and not once the lease is lost. A process that is frozen after a renewal records the new deadline
// when it goes on, and by then another may have been granted the key: after that deadline.
func (t *Trace) moves(v *view, e Event) error {
	switch {
	case e.Deadline <= v.deadline:
		return nil // what was recorded at one instant may be in any order
	case v.next != 0 && e.Deadline > v.taken && v.stage == held && !v.robbed:
		return t.wrong(e, "lease %d was granted at %v, and its deadline has moved to %v", v.next, v.taken, e.Deadline)
	case v.stage == lost:
		return t.wrong(e, "it was lost, and its deadline has moved by %v", e.Deadline-v.deadline)
	case e.Deadline > e.At+v.ttl:
		return t.wrong(e, "its deadline is %v away, more than its TTL of %v", e.Deadline-e.At, v.ttl)
	}
	v.since, v.deadline = e.Since, e.Deadline
	return nil
}

func (t *Trace) wrong(e Event, format string, args ...any) error {
	return fmt.Errorf("%v of lease %d at %v is no step of the model: %s", e.What, e.Lease, e.At, fmt.Sprintf(format, args...))
}

func (s stage) String() string {
	return [...]string{"not granted", "held", "lost", "unlocked"}[s]
}

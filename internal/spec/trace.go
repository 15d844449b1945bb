package spec

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// A [Trace] is the model of what can be seen from outside of the life of claims on one key: calls and their results,
// and writes to the resource that the key protects. Each operation that a run has recorded is a step of it, or the
// record shows something that the model of claims cannot do. (TestTraceFollowsClaims goes through both side by side.)

// Event is one recorded operation.
type Event struct {
	What     What
	At       time.Duration // on one clock for all processes
	Lease    uint64        // names the Lock that it belongs to
	Token    int64         // Granted, Reentered
	Deadline time.Duration // of the lease, as its holder knows it now; 0: not asked for
	TTL      time.Duration // Asks. Renewed: how long a renewal lasts at least, from the call of Renew
	Permits  int           // Asks: how many of those that the key has; 0 of a lock
	Since    time.Duration // with Deadline: the store had the lock then, or later
	// Excused reports whether a lock that the store had at a time, or later, may have been lost by now by design, as a
	// store loses it that forgets its data. It is for Granted, Holds, Reentered and Renewed; nil: none may.
	Excused func(since time.Duration) bool
}

func (e Event) excuses(since time.Duration) bool { return e.Excused != nil && e.Excused(since) }

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
	Renews                // Renew is called
	Renewed               // it has returned nil
	Unrenewed             // it has returned ErrUnavailable
	Writes                // a write to the resource is sent, with the token
	Accepted              // the resource has accepted it
	Rejected              // the resource has refused it
	Unlocks               // Unlock is called
	Unlocked              // it has returned nil or ErrLost
	Failed                // it has returned ErrUnavailable: it may be called again
	Died                  // the process was killed
)

func (w What) String() string {
	return [...]string{"Lock", "granted", "refused", "held", "lost", "re-entered",
		"Renew", "Renew returned", "Renew failed", "a write", "an accepted write", "a refused write",
		"Unlock", "Unlock returned", "Unlock failed", "died"}[w]
}

// view holds what is known of a lease.
type view struct {
	stage    stage
	token    int64
	permits  int
	ttl      time.Duration
	renewing bool          // Renew is under way
	renews   time.Duration // when it was called last
	over     bool          // the deadline was over then
	writing  bool          // a write is under way
	least    int64         // the greatest token of the writes that were accepted before its last write was sent
	granted  time.Duration // the store had the lock then, or later, by the grant
	since    time.Duration // and by the last renewal
	deadline time.Duration
	refused  bool          // the resource has refused its token
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
	permits  int // that the key has; 0 of a lock
	leases   map[uint64]*view
	greatest int64          // token
	used     map[int64]bool // tokens of permits
	sent     int64          // the greatest token of a write
	accepted int64          // that of a write that was accepted
}

// NewTrace returns a Trace of a key that nobody holds. The key has so many permits, or is that of a lock: 0.
func NewTrace(permits int) *Trace {
	return &Trace{permits: permits, leases: map[uint64]*view{}, used: map[int64]bool{}}
}

// Step takes an operation. It returns an error if that is no step from here.
func (t *Trace) Step(e Event) error {
	v := t.leases[e.Lease]
	if e.What == Asks {
		if v != nil {
			return t.wrong(e, "the lease is there already")
		}
		t.leases[e.Lease] = &view{ttl: e.TTL, permits: e.Permits}
		return nil
	}
	if v == nil {
		return t.wrong(e, "there is no such lease: it was not asked for, or is over")
	}
	if err := t.follows(v, e); err != nil {
		return err
	}
	switch e.What {
	case Granted:
		return t.grant(v, e)
	case Writes, Accepted, Rejected:
		return t.write(v, e)
	}
	if err := t.moves(v, e); err != nil {
		return err
	}
	switch e.What {
	case Refused, Unlocked, Died:
		delete(t.leases, e.Lease)
	case Lost:
		v.stage = lost
	case Renews:
		v.renewing, v.renews, v.over = true, e.At, e.At >= v.deadline
	case Renewed, Unrenewed:
		v.renewing = false
	case Unlocks:
		v.stage = unlocked
	}
	return nil
}

// follows wants an operation to be possible in the stage that the lease is in.
func (t *Trace) follows(v *view, e Event) error {
	possible := map[What][]stage{
		Granted: {asked}, Refused: {asked}, Holds: {held}, Lost: {held, lost, unlocked}, Reentered: {held},
		Renews: {held, lost}, Renewed: {held}, Unrenewed: {held}, Writes: {held, lost}, Accepted: {held, lost}, Rejected: {held, lost},
		Unlocks: {held, lost, unlocked}, Unlocked: {unlocked}, Failed: {unlocked}, Died: {asked, held, lost, unlocked},
	}
	last := max(e.Deadline, v.deadline)
	switch {
	case !slices.Contains(possible[e.What], v.stage):
		return t.wrong(e, "it is %v", v.stage)
	case (e.What == Renewed || e.What == Unrenewed) && !v.renewing, (e.What == Accepted || e.What == Rejected) && !v.writing:
		return t.wrong(e, "it was not called")
	case e.What == Holds && e.At >= last:
		return t.wrong(e, "its deadline was over %v before", e.At-last)
	case (e.What == Holds || e.What == Reentered || e.What == Renewed) && v.refused && !e.excuses(v.granted):
		return t.wrong(e, "the resource has refused its token, so another lease was granted")
	case e.What == Reentered && e.Token != v.token:
		return t.wrong(e, "with token %d, and it has %d", e.Token, v.token)
	case e.What == Renewed && v.over:
		return t.wrong(e, "called at %v, when its deadline was over", v.renews)
	case e.What == Renewed && last < v.renews+e.TTL:
		return t.wrong(e, "called at %v, and its deadline is %v", v.renews, last)
	}
	return nil
}

// grant wants the key to be free, and the token to be in its order. A grant whose lease was over when it
// was returned is none: its process was frozen on the way.
func (t *Trace) grant(v *view, e Event) error {
	v.stage, v.token, v.granted, v.since, v.deadline = held, e.Token, e.Since, e.Since, e.Deadline
	if e.Deadline > e.At+v.ttl {
		return t.wrong(e, "it lasts %v longer than its TTL of %v", e.Deadline-e.At-v.ttl, v.ttl)
	}
	if e.Deadline <= e.At {
		return nil
	}
	excused := func(x *view) bool { return e.excuses(x.since) }
	if err := t.ordered(v, e); err != nil {
		return err
	}
	out := v.need() // permits that are out, with those of the grant
	var over []*view
	for _, o := range t.leases {
		if o == v || o.stage != held {
			continue
		}
		switch {
		case excused(v) && (t.permits > 0 || e.Token < o.token):
			v.robbed = true // granted before the loss, and told so only after it
		case excused(o):
			o.robbed = true
		case o.deadline > e.At:
			out += o.need()
		case o.next == 0:
			over = append(over, o) // or a renewal of it was not recorded yet
		}
	}
	if out > t.has() {
		return t.wrong(e, "%d of %d are out: %s", out, t.has(), t.holders(e.At))
	}
	for _, o := range over {
		if out+o.need() > t.has() {
			o.next, o.taken = e.Lease, e.At
		}
	}
	return nil
}

// ordered wants the token of a lock to be the greatest, and that of permits to be new.
func (t *Trace) ordered(v *view, e Event) error {
	switch {
	case t.permits > 0 && t.used[e.Token]:
		return t.wrong(e, "token %d was granted before", e.Token)
	case t.permits > 0:
		t.used[e.Token] = true
	case e.Token <= t.greatest && !e.excuses(v.since):
		return t.wrong(e, "token %d after %d", e.Token, t.greatest)
	}
	t.greatest = max(t.greatest, e.Token)
	return nil
}

// need returns what a lease takes of what the key has.
func (v *view) need() int { return max(1, v.permits) }

func (t *Trace) has() int { return max(1, t.permits) }

// holders lists the leases that hold the key.
func (t *Trace) holders(at time.Duration) string {
	var all []string
	for name, v := range t.leases {
		if v.stage == held && v.deadline > at {
			all = append(all, fmt.Sprintf("lease %d has %d until %v", name, v.need(), v.deadline))
		}
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}

// write wants the resource to accept a token unless it has seen a greater one. Writes of two processes may overlap: a write
// that was sent may have been seen, and a write that was accepted before another was sent was seen before that.
func (t *Trace) write(v *view, e Event) error {
	if e.What == Writes {
		v.writing, t.sent, v.least = true, max(t.sent, v.token), t.accepted
		return nil
	}
	v.writing = false
	switch {
	case e.What == Accepted && v.refused:
		return t.wrong(e, "the resource has refused its token %d before", v.token)
	case e.What == Accepted && v.token < v.least:
		return t.wrong(e, "its token is %d, and the resource had accepted %d", v.token, v.least)
	case e.What == Accepted:
		t.accepted = max(t.accepted, v.token)
	case v.token >= t.sent:
		return t.wrong(e, "its token is %d, and the greatest of a write was %d", v.token, t.sent)
	default:
		v.refused = true
	}
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

package soak

import (
	"cmp"
	"slices"
	"time"

	"github.com/distlock/locker/internal/spec"
)

// Replay: what the processes have recorded of a key, in the order of its times, is a run of the
// model of a claim's life (package spec), each operation a step of it. Operations on permits are
// steps of a model that counts them.

// trace notes a record for the replay.
func (r *reader) trace(rec record) {
	what, seen := rec.step()
	if !seen {
		return
	}
	ttl := r.pending[rec.Op].ttl
	if x := r.open[rec.Op]; x != nil {
		ttl = x.ttl
	}
	e := spec.Event{
		What: what, At: time.Duration(rec.At), Lease: r.lease64(rec.Op), Token: rec.Token, Permits: int(rec.Permits),
		Deadline: time.Duration(rec.Deadline), Since: time.Duration(proven(rec.Deadline, ttl)),
		TTL: time.Duration(rec.TTL)*time.Millisecond + r.slack, // the deadline was looked at later than At
	}
	if what == spec.Renewed {
		e.TTL = renewsFor(ttl)
	}
	k := r.at(rec.Key)
	k.trace = append(k.trace, e)
}

// renewsFor is how long a renewal lasts at least, from the call of Renew. A Locker counts a lease less 1 % of its
// TTL and 2 ms; the rest is for the conversion between the clocks.
func renewsFor(ttl time.Duration) time.Duration { return ttl - ttl/100 - 4*time.Millisecond }

// step returns which step of the model a record is, if it is one.
func (r record) step() (spec.What, bool) {
	yes := r.Flags&flagYes != 0
	switch {
	case r.Flags&flagInner != 0:
		return spec.Reentered, r.Kind == recGranted // the outer lease stays
	case r.Kind == recLock:
		return spec.Asks, true
	case r.Kind == recGranted:
		return spec.Granted, true
	case r.Kind == recRefused:
		return spec.Refused, true
	case r.Kind == recAsk && yes:
		return spec.Holds, true
	case r.Kind == recAsk, r.Kind == recLost, r.Kind == recRenewed && r.Result == resLost:
		return spec.Lost, true
	case r.Kind == recRenew:
		return spec.Renews, true
	case r.Kind == recRenewed && r.Result == resOK:
		return spec.Renewed, true
	case r.Kind == recRenewed:
		return spec.Unrenewed, true
	case r.Kind == recWriting:
		return spec.Writes, true
	case r.Kind == recWrite && yes:
		return spec.Accepted, true
	case r.Kind == recWrite:
		return spec.Rejected, true
	case r.Kind == recUnlock:
		return spec.Unlocks, true
	case r.Kind == recUnlocked && r.Result == resUnavailable:
		return spec.Failed, true
	case r.Kind == recUnlocked:
		return spec.Unlocked, true
	}
	return 0, false // a ForceUnlock: it belongs to no lease, and excuses a loss
}

// lease64 names a lease across processes.
func (r *reader) lease64(op uint32) uint64 { return r.number<<32 | uint64(op) }

// died notes the end of the leases and calls of a process.
func (r *reader) died(key uint16, op uint32, at instant) {
	k := r.at(key)
	k.trace = append(k.trace, spec.Event{What: spec.Died, At: time.Duration(at), Lease: r.lease64(op)})
}

// replay wants each operation on a key to be a step of the model.
func (h *history) replay(k *keyHistory) {
	slices.SortStableFunc(k.trace, func(a, b spec.Event) int { return cmp.Compare(a.At, b.At) })
	t := spec.NewTrace(h.permits)
	for _, e := range k.trace {
		e.Excused = func(since time.Duration) bool { return h.lossesWithin(k.key, span{instant(since), instant(e.At)}) }
		h.count[Steps]++
		if err := t.Step(e); err != nil {
			h.violate(NoStep, k.key, span{instant(e.At), instant(e.At)}, "process %d, op %d: %v", e.Lease>>32, uint32(e.Lease), err)
			return
		}
	}
}

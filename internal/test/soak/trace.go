package soak

import (
	"cmp"
	"slices"
	"time"

	"github.com/distlock/locker/internal/spec"
)

// Replay: what the processes have recorded of a key, in the order of its times, is a run of the
// model of a claim's life (package spec), each operation a step of it.

// trace notes a record for the replay.
func (r *reader) trace(rec record) {
	what, inner, yes := spec.Asks, rec.Flags&flagInner != 0, rec.Flags&flagYes != 0
	switch {
	case inner && rec.Kind == recGranted:
		what = spec.Reentered
	case inner, rec.Kind == recWrite, rec.Kind == recRenew, rec.Kind == recRenewed, rec.Kind == recBreak, rec.Kind == recBroken:
		return // nothing that changes the lease from outside
	case rec.Kind == recGranted:
		what = spec.Granted
	case rec.Kind == recRefused:
		what = spec.Refused
	case rec.Kind == recAsk && yes:
		what = spec.Holds
	case rec.Kind == recAsk, rec.Kind == recLost:
		what = spec.Lost
	case rec.Kind == recUnlock:
		what = spec.Unlocks
	case rec.Kind == recUnlocked && rec.Result == resUnavailable:
		what = spec.Failed
	case rec.Kind == recUnlocked:
		what = spec.Unlocked
	}
	ttl := r.pending[rec.Op].ttl
	if x := r.open[rec.Op]; x != nil {
		ttl = x.ttl
	}
	k := r.at(rec.Key)
	k.trace = append(k.trace, spec.Event{
		What: what, At: time.Duration(rec.At), Lease: r.lease64(rec.Op), Token: rec.Token,
		Deadline: time.Duration(rec.Deadline), Since: time.Duration(proven(rec.Deadline, ttl)),
		TTL: time.Duration(rec.TTL)*time.Millisecond + r.slack, // the deadline was looked at later than At
	})
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
	t := spec.NewTrace()
	for _, e := range k.trace {
		e.Excused = func(since time.Duration) bool { return h.lossesWithin(k.key, span{instant(since), instant(e.At)}) }
		h.count[Steps]++
		if err := t.Step(e); err != nil {
			h.violate(NoStep, k.key, span{instant(e.At), instant(e.At)}, "process %d, op %d: %v", e.Lease>>32, uint32(e.Lease), err)
			return
		}
	}
}

package conformance

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/distlock/locker"
)

// A history is what callers asked of one key and were answered, with the times
// of both. It is checked by searching for an order of the operations, each at
// some moment between its question and its answer, in which a mutex with an owner
// and a growing token would have given the same answers.

type histKind int

const (
	histTry histKind = iota
	histRenew
	histUnlock
	histExpire // nobody asked for it: a lease that is not renewed ends by itself
)

func (k histKind) String() string {
	return [...]string{"TryLock", "Renew", "Unlock", "expiry"}[k]
}

// histIn is a question.
type histIn struct {
	kind    histKind
	lease   int // which lease asks; a TryLock brings one into being
	permits int // that a TryLock asks for; 0 of a lock
}

// histOut is an answer.
type histOut struct {
	granted bool  // TryLock
	token   int64 // TryLock, 0 without fencing
	held    bool  // Renew, Unlock: the lease held the key
	unknown bool  // no answer, so that it may or may not have taken effect
}

// histState is the state of the mutex.
type histState struct {
	holder int // a lease; 0 for nobody
	token  int64
}

// histModel is the mutex.
var histModel = porcupine.Model{
	Init: func() any { return histState{} },
	Step: func(state, input, output any) (bool, any) {
		s, in, out := state.(histState), input.(histIn), output.(histOut)
		holds := s.holder == in.lease
		switch in.kind {
		case histTry:
			switch {
			case out.unknown:
				if s.holder == 0 {
					s.holder = in.lease // its token, if it took effect, nobody saw
				}
				return true, s
			case !out.granted:
				return s.holder != 0, s
			}
			ok := s.holder == 0 && (out.token == 0 || out.token > s.token)
			return ok, histState{holder: in.lease, token: max(s.token, out.token)}
		case histRenew:
			return out.held == holds, s
		case histUnlock:
			ok := out.unknown || out.held == holds
			if holds {
				s.holder = 0
			}
			return ok, s
		case histExpire:
			if holds {
				s.holder = 0
			}
			return true, s
		}
		return false, s
	},
}

// history records operations on one key. It may be used by many goroutines.
type history struct {
	start time.Time
	model porcupine.Model

	mu     sync.Mutex
	leases int
	ops    []porcupine.Operation
}

func newHistory(of porcupine.Model) *history { return &history{start: time.Now(), model: of} }

func (h *history) now() int64 { return int64(time.Since(h.start)) }

func (h *history) add(client int, in histIn, out histOut, from, to int64) {
	if out.unknown {
		to = math.MaxInt64 // it may take effect at any time from now on
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ops = append(h.ops, porcupine.Operation{ClientId: client, Input: in, Output: out, Call: from, Return: to})
}

func (h *history) newLease() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.leases++
	return h.leases
}

// attempt is a TryLock. It returns how many permits it asked for, too; 0 of a lock.
type attempt func(opts ...locker.LockOption) (lease *locker.Lease, permits int, err error)

func tryLock(t *T, l locker.Locker, key string) attempt {
	return func(opts ...locker.LockOption) (*locker.Lease, int, error) {
		lease, err := l.TryLock(t.Context(), key, opts...)
		return lease, 0, err
	}
}

// try makes an attempt and records it. The lease is nil if it was not granted. Strict means
// that a refusal shows that the key was held. It does not show that if other callers of the same
// Locker, or contenders in a quorum, may have been in the way.
func (h *history) try(t *T, client int, strict bool, f attempt, opts ...locker.LockOption) (*locker.Lease, int) {
	t.Helper()
	in := histIn{kind: histTry, lease: h.newLease()}
	from := h.now()
	lease, permits, err := f(opts...)
	to := h.now()
	in.permits = permits
	switch {
	case err == nil:
		h.add(client, in, histOut{granted: true, token: lease.Token()}, from, to)
	case errors.Is(err, locker.ErrNotAcquired) && strict:
		h.add(client, in, histOut{}, from, to)
	case errors.Is(err, locker.ErrNotAcquired): // says nothing
	case errors.Is(err, locker.ErrUnavailable):
		h.add(client, in, histOut{unknown: true}, from, to)
		// If it was granted, it is cleaned up some time, or expires. The search takes
		// operations by the time of their call, and gets on if this one comes second.
		h.add(client, histIn{kind: histExpire, lease: in.lease}, histOut{unknown: true}, from+1, to)
	default:
		t.Fatalf("TryLock: %v", err)
	}
	return lease, in.lease
}

// ask is Renew or Unlock, recorded.
func (h *history) ask(t *T, client int, kind histKind, id int, f func() error) {
	t.Helper()
	from := h.now()
	err := f()
	to := h.now()
	out := histOut{held: err == nil, unknown: errors.Is(err, locker.ErrUnavailable)}
	if err != nil && !out.unknown && !errors.Is(err, locker.ErrLost) {
		t.Fatalf("%v: %v", kind, err)
	}
	if kind != histRenew || !out.unknown { // which would change nothing
		h.add(client, histIn{kind: kind, lease: id}, out, from, to)
	}
}

// expires says that the lease may end by itself from its deadline on.
func (h *history) expires(client, id int, deadline time.Time) {
	h.add(client, histIn{kind: histExpire, lease: id}, histOut{unknown: true}, int64(deadline.Sub(h.start)), 0)
}

// telling returns the operations that the answers depend on. The search takes long where operations may have
// happened at any time. An attempt without an answer can explain refusals only.
func (h *history) telling() []porcupine.Operation {
	refused := slices.ContainsFunc(h.ops, func(op porcupine.Operation) bool {
		out := op.Output.(histOut)
		return op.Input.(histIn).kind == histTry && !out.granted && !out.unknown
	})
	if refused {
		return h.ops
	}
	ghosts := make(map[int]bool) // leases
	for _, op := range h.ops {
		if in := op.Input.(histIn); in.kind == histTry && op.Output.(histOut).unknown {
			ghosts[in.lease] = true
		}
	}
	return slices.DeleteFunc(slices.Clone(h.ops), func(op porcupine.Operation) bool { return ghosts[op.Input.(histIn).lease] })
}

// check fails the case if there is no such order.
func (h *history) check(t *T) {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	switch porcupine.CheckOperationsTimeout(h.model, h.telling(), t.Timing().Patience) {
	case porcupine.Ok:
	case porcupine.Unknown:
		t.Errorf("whether an order explains these operations was not found out within %v:\n%s", t.Timing().Patience, h)
	default:
		t.Errorf("no order of these operations explains their answers:\n%s", h)
	}
}

// String lists the operations by the time they were asked.
func (h *history) String() string {
	ops := slices.Clone(h.ops)
	slices.SortFunc(ops, func(a, b porcupine.Operation) int { return int(a.Call - b.Call) })
	var b strings.Builder
	for _, op := range ops {
		in, out := op.Input.(histIn), op.Output.(histOut)
		to, answer := time.Duration(op.Return).String(), ""
		switch {
		case out.unknown:
			to, answer = "...", "?"
		case in.kind == histTry:
			answer = fmt.Sprintf("granted=%t token=%d", out.granted, out.token)
		default:
			answer = fmt.Sprintf("held=%t", out.held)
		}
		if in.permits > 0 {
			answer += fmt.Sprintf(" permits=%d", in.permits)
		}
		fmt.Fprintf(&b, "%12v - %-12s client %d %-7v lease %-3d %s\n", time.Duration(op.Call), to, op.ClientId, in.kind, in.lease, answer)
	}
	return b.String()
}

func testLinearizable(t *T) {
	h, key := newHistory(histModel), t.Key("k")
	// Two Lockers with a caller each, whose refusals count, and one with two.
	ls := t.Lockers(3)
	t.Together(4, func(i int) {
		t.historyClient(h, i+1, i < 2 && !t.caps().Quorum, tryLock(t, ls[min(i, 2)], key), 40, func(Op) {})
	})
	h.check(t)
}

// historyClient makes an attempt n times and does this and that while it holds it.
// Before each command it calls before.
func (t *T) historyClient(h *history, client int, strict bool, try attempt, n int, before func(Op)) {
	for i := range n {
		// Not at first: the rest may be over before such a lease is.
		abandon := i > n/2 && t.IntN(10) == 0
		var opts []locker.LockOption
		if abandon {
			opts = []locker.LockOption{locker.WithTTL(t.Timing().MinTTL), locker.WithoutRenewal()}
		}
		before(OpAcquire)
		lease, id := h.try(t, client, strict, try, opts...)
		if lease != nil && abandon {
			h.expires(client, id, lease.Deadline())
		} else if lease != nil {
			if t.IntN(2) == 0 {
				before(OpRenew)
				h.ask(t, client, histRenew, id, func() error { return lease.Renew(t.Context()) })
			}
			time.Sleep(time.Duration(t.IntN(300)) * time.Microsecond) // the section
			before(OpRelease)
			h.ask(t, client, histUnlock, id, func() error { return lease.Unlock(t.Context()) })
		}
		time.Sleep(time.Duration(t.IntN(1000)) * time.Microsecond) // so that others get in between, or not
	}
}

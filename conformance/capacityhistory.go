package conformance

import (
	"maps"
	"strconv"

	"github.com/anishathalye/porcupine"

	"github.com/distlock/locker"
)

// permitState is the state of a key with permits.
type permitState struct {
	held  map[int]permitsOf // by lease; never changed, but copied
	ended int64             // the greatest token of a lease that has ended
}

// permitsOf holds the permits of a lease.
type permitsOf struct {
	count int
	token int64
}

func (s permitState) out() (n int) {
	for _, of := range s.held {
		n += of.count
	}
	return n
}

func (s permitState) with(lease int, of permitsOf) permitState {
	s.held = maps.Clone(s.held)
	s.held[lease] = of
	return s
}

func (s permitState) without(lease int) permitState {
	s.ended = max(s.ended, s.held[lease].token)
	s.held = maps.Clone(s.held)
	delete(s.held, lease)
	return s
}

// fits reports whether a grant may have this token: greater than those that have ended, and nobody's.
func (s permitState) fits(token int64) bool {
	for _, of := range s.held {
		if token != 0 && of.token == token {
			return false
		}
	}
	return token == 0 || token > s.ended
}

// permitModel returns the model of a key with permits. Nobody waits, so that nothing is kept free.
func permitModel(limit int) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return permitState{held: map[int]permitsOf{}} },
		Equal: func(a, b any) bool {
			x, y := a.(permitState), b.(permitState)
			return x.ended == y.ended && maps.Equal(x.held, y.held)
		},
		Step: func(state, input, output any) (bool, any) {
			s, in, out := state.(permitState), input.(histIn), output.(histOut)
			_, holds := s.held[in.lease]
			room := s.out()+in.permits <= limit
			switch {
			case in.kind == histTry && out.unknown:
				if room {
					s = s.with(in.lease, permitsOf{count: in.permits})
				}
				return true, s
			case in.kind == histTry && !out.granted:
				return !room, s
			case in.kind == histTry:
				return room && s.fits(out.token), s.with(in.lease, permitsOf{in.permits, out.token})
			case in.kind == histRenew:
				return out.held == holds, s
			case holds:
				s = s.without(in.lease)
			}
			return in.kind == histExpire || out.unknown || out.held == holds, s
		},
	}
}

const historyPermits = 4

// tryPermits is for 1 to all permits of key.
func tryPermits(t *T, l locker.Locker, key string) attempt {
	t.Helper()
	return tryPermitsOf(t, l, key, func() int { return 1 + t.IntN(historyPermits) })
}

func tryPermitsOf(t *T, l locker.Locker, key string, count func() int) attempt {
	t.Helper()
	s := t.semaphore(key, historyPermits, l)[0]
	return func(opts ...locker.LockOption) (*locker.Lease, int, error) {
		n := count()
		lease, err := s.AcquireN(t.Context(), n, append(opts, locker.WithWait(0))...)
		return lease, n, err
	}
}

func testPermitsLinearizable(t *T) {
	h, key, ls := newHistory(permitModel(historyPermits)), t.Key("k"), t.Lockers(4)
	t.Together(len(ls), func(client int) {
		t.historyClient(h, client, true, tryPermits(t, ls[client], key), 30, func(Op) {})
	})
	h.check(t)
}

func testPermitsLinearizableUnderFaults(t *T) {
	ls := t.Lockers(4)
	t.linearizableUnderFaults(permitModel(historyPermits), true, func(client int, key string) attempt { return tryPermits(t, ls[client], key) })
	for round := range 3 {
		t.linearizableRepeated(ls, t.Key("repeated "+strconv.Itoa(round)))
	}
}

// linearizableRepeated checks a history in which each attempt and renewal arrives twice, and no reply is lost. An
// attempt without an answer may have its permits at any later time, and so may explain a refusal; here nothing explains
// one. The history ends with an attempt for one permit, which leaves room for itself to be counted twice, and with one
// for all.
func (t *T) linearizableRepeated(ls []locker.Locker, key string) {
	t.Helper()
	h := newHistory(permitModel(historyPermits))
	repeat := func(op Op) {
		if op != OpRelease { // the second finds nothing, and says so
			t.NoError(t.faults().Repeat(op), "repeating a command")
		}
	}
	// Clients of two attempts abandon no lease: its end, which may come at any time, would explain refusals, too.
	t.Together(len(ls), func(client int) { t.historyClient(h, client, true, tryPermits(t, ls[client], key), 2, repeat) })
	for _, n := range []int{1, historyPermits} {
		t.historyClient(h, 0, true, tryPermitsOf(t, ls[0], key, func() int { return n }), 1, repeat)
	}
	h.check(t)
}

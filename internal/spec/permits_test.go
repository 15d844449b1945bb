package spec

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// permitStore grants the permits of a key, and makes the mistakes that it is asked to make.
type permitStore struct {
	leases []permitLease
	last   int64 // token

	ignoresWeights, grantsAny, repeatsTokens, keepsNoTime bool
}

const keyPermits = 3

type permitLease struct {
	name     uint64
	permits  int
	deadline time.Duration
}

// grant reports whether there are so many permits, and the token of the grant.
func (s *permitStore) grant(permits int) (token int64, granted bool) {
	out := 0
	for _, l := range s.leases {
		if out += l.permits; s.ignoresWeights {
			out += 1 - l.permits
		}
	}
	if s.ignoresWeights {
		permits = 1
	}
	if out+permits > keyPermits && !s.grantsAny {
		return 0, false
	}
	if s.last == 0 || !s.repeatsTokens {
		s.last++
	}
	return s.last, true
}

// walk lets callers take and give back permits by chance. It returns what is no step of the model.
func (s permitStore) walk(r *rand.Rand) error {
	const ttl = 3 * time.Second
	trace, now := NewTrace(keyPermits), time.Duration(0)
	for name := range uint64(60) {
		now += time.Duration(r.Int64N(int64(time.Second)))
		if !s.keepsNoTime {
			s.leases = slices.DeleteFunc(s.leases, func(l permitLease) bool { return l.deadline <= now })
		}
		var events []Event
		if r.IntN(2) == 0 && len(s.leases) > 0 {
			i := r.IntN(len(s.leases))
			l := s.leases[i]
			for _, what := range [][]What{{Holds}, {Unlocks, Unlocked}}[r.IntN(2)] {
				events = append(events, Event{What: what, Lease: l.name, At: now})
			}
			if len(events) > 1 {
				s.leases = slices.Delete(s.leases, i, i+1)
			}
		} else {
			l := permitLease{name, 1 + r.IntN(keyPermits), now + ttl}
			events = append(events, Event{What: Asks, Lease: name, At: now, TTL: ttl, Permits: l.permits})
			if token, granted := s.grant(l.permits); granted {
				events = append(events, Event{What: Granted, Lease: name, At: now, Token: token, Since: now, Deadline: l.deadline})
				s.leases = append(s.leases, l)
			} else {
				events = append(events, Event{What: Refused, Lease: name, At: now})
			}
		}
		if err := replay(trace, events); err != nil {
			return err
		}
	}
	return nil
}

// TestTraceCountsPermits wants what a store of permits does to be accepted, and its mistakes to be refused.
func TestTraceCountsPermits(t *testing.T) {
	for name, c := range map[string]struct {
		store permitStore
		wrong bool
	}{
		"sound":           {permitStore{}, false},
		"ignores weights": {permitStore{ignoresWeights: true}, true},
		"grants any":      {permitStore{grantsAny: true}, true},
		"repeats tokens":  {permitStore{repeatsTokens: true}, true},
		"keeps no time":   {permitStore{keepsNoTime: true}, true},
	} {
		var err error
		r := rand.New(rand.NewPCG(1, 2))
		for n := 0; n < 1000 && err == nil; n++ {
			err = c.store.walk(r)
		}
		if (err != nil) != c.wrong {
			t.Errorf("%s: %v, want it refused: %t", name, err, c.wrong)
		}
	}
}

// TestTraceRefusesPermits has records of permits that cannot be, and such as look like it.
func TestTraceRefusesPermits(t *testing.T) {
	const s = time.Second
	take := func(lease uint64, at time.Duration, permits int, token int64) []Event {
		return []Event{
			{What: Asks, Lease: lease, At: at, TTL: 3 * s, Permits: permits},
			{What: Granted, Lease: lease, At: at + 1, Since: at, Token: token, Deadline: at + 3*s, Excused: func(since time.Duration) bool { return since <= s && at > s }},
		}
	}
	holds := func(lease uint64, at, deadline time.Duration) []Event {
		return []Event{{What: Holds, Lease: lease, At: at, Deadline: deadline, Since: deadline - 3*s}}
	}
	for name, c := range map[string]struct {
		events [][]Event
		wrong  bool
	}{
		"as many as there are":     {[][]Event{take(1, 2*s, 2, 1), take(2, 2*s, 1, 2)}, false},
		"one too many":             {[][]Event{take(1, 2*s, 2, 1), take(2, 2*s, 2, 2)}, true},
		"a smaller token":          {[][]Event{take(1, 2*s, 2, 2), take(2, 2*s, 1, 1)}, false},
		"a token of two":           {[][]Event{take(1, 2*s, 2, 1), take(2, 2*s, 1, 1)}, true},
		"after a loss":             {[][]Event{take(1, s/2, 3, 1), take(2, 2*s, 3, 2)}, false},
		"renewed beside the next":  {[][]Event{take(1, 2*s, 2, 1), take(2, 6*s, 2, 2), holds(1, 7*s, 8*s)}, true},
		"renewed, and enough left": {[][]Event{take(1, 2*s, 1, 1), take(2, 6*s, 2, 2), holds(1, 7*s, 8*s)}, false},
		"renewed before the next":  {[][]Event{take(1, 2*s, 2, 1), take(2, 7*s, 2, 2), {{What: Lost, Lease: 1, At: 8 * s, Deadline: 6 * s, Since: 3 * s}}}, false},
	} {
		if err := replay(NewTrace(keyPermits), c.events...); (err != nil) != c.wrong {
			t.Errorf("%s: %v, want it refused: %t", name, err, c.wrong)
		}
	}
}

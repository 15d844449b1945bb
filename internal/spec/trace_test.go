package spec

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// watched is a walk through the model of claims, with the events that are seen from outside.
type watched struct {
	life  Life
	ticks time.Duration
	steps time.Duration  // since the last tick
	lease [claims]uint64 // of the present holder of each claim
	last  uint64         // lease
	calls [claims]bool   // a Renew of the present holder is under way
	wrote int64          // the greatest token that the resource has seen
	trace *Trace
}

func (w *watched) now() time.Duration { return w.ticks*time.Second + w.steps }

func (w *watched) event(id int, what What) Event {
	c := w.life.Claims[id]
	e := Event{What: what, At: w.now(), Lease: w.lease[id], Token: int64(c.Token), TTL: ttl * time.Second}
	if c.State == Held {
		e.Deadline = (w.ticks + time.Duration(c.Left)) * time.Second
	}
	if what == Renewed {
		e.TTL -= time.Millisecond // the steps since the last tick
	}
	e.Excused = func(time.Duration) bool {
		return slices.ContainsFunc(w.life.Claims[:], func(c Claim) bool { return c.Broken })
	}
	return e
}

// follow takes a step, and replays what is seen of it.
func (w *watched) follow(next Life, tick bool) (err error) {
	before := w.life
	if w.life, w.steps = next, w.steps+1; tick {
		w.ticks, w.steps = w.ticks+1, 0
	}
	see := func(id int, whats ...What) {
		for _, what := range whats {
			if err == nil {
				err = w.trace.Step(w.event(id, what))
			}
		}
	}
	newLease := func(id int) { w.last++; w.lease[id], w.calls[id] = w.last, false }
	for id := range next.Claims {
		was, is := before.Claims[id], next.Claims[id]
		switch {
		case was.State != Asking && is.State == Asking:
			newLease(id)
			see(id, Asks)
		case was.State == Asking && is.State == Released:
			see(id, Refused)
		case was.State == Asking && is.State == Held:
			see(id, Granted)
		case was.State == Held && is.State == Held && is.Handed != was.Handed:
			see(id, Unlocks, Unlocked)
			newLease(id)
			see(id, Asks, Granted)
		case was.State == Kept && is.State == Held:
			newLease(id)
			see(id, Asks, Granted)
		case was.State == Held && (is.State == Released || is.State == Kept):
			see(id, Unlocks, Unlocked)
		case was.State == Held && is.State == Over:
			see(id, Lost, Unlocks, Unlocked)
		case was.State == Held && is.State == Held && was.Commands&Renew < is.Commands&Renew:
			w.calls[id] = true
			see(id, Renews)
		case was.State == Held && is.State == Held && was.Replies&Renew > is.Replies&Renew:
			if w.calls[id] && is.Commands&Renew == 0 { // or the reply is that of an earlier command
				w.calls[id] = false
				see(id, Renewed)
			}
		case was.State == Held && is.State == Held:
			see(id, Holds, Writes, w.write(int64(is.Token)))
		}
	}
	return err
}

// write writes to the resource.
func (w *watched) write(token int64) What {
	if token < w.wrote {
		return Rejected
	}
	w.wrote = token
	return Accepted
}

// walk goes where chance takes it. It returns what is no step of the model as it is seen.
func (m Mistakes) walk(r *rand.Rand) error {
	w := &watched{life: ClaimModel(claims, m).Begin, trace: NewTrace(0)}
	for range 60 {
		var names []string
		var states []Life
		m.steps(w.life, func(name string, next Life) { names, states = append(names, name), append(states, next) })
		i := r.IntN(len(states))
		if err := w.follow(states[i], names[i] == "a tick passes"); err != nil {
			return err
		}
	}
	return nil
}

// TestTraceFollowsClaims wants all that the model of claims does to be accepted as a trace, and what
// it does with mistakes that are seen from outside to be refused.
func TestTraceFollowsClaims(t *testing.T) {
	const walks, search = 2_000, 40_000
	r := rand.New(rand.NewPCG(1, 2))
	for range walks {
		if err := (Mistakes{}).walk(r); err != nil {
			t.Fatalf("the model does what is refused: %v", err)
		}
	}
	for name, m := range map[string]Mistakes{
		"releases any": {ReleasesAny: true}, "grants any": {GrantsAny: true}, "counts from the reply": {CountsFromReply: true},
		"own tokens": {OwnTokens: true}, "repeats tokens": {RepeatsToken: true}, "reserves one": {ReservesOne: true},
		"reuses ids": {ReusesID: true}, "ignores the clock": {IgnoresClock: true}, "accepts late grants": {AcceptsLate: true, IgnoresClock: true},
		"keeps past the end": {KeptIgnoresClock: true}, "keeps with the token": {KeptRepeatsToken: true}, "keeps without tokens": {KeptTakesTokens: true},
	} {
		var err error
		r, n := rand.New(rand.NewPCG(1, 2)), 0
		for ; n < search && err == nil; n++ {
			err = m.walk(r)
		}
		if err == nil {
			t.Errorf("%s: nothing is refused", name)
		}
		t.Logf("%s: %d walks: %v", name, n, err)
	}
}

// TestTraceRefuses has records that cannot be.
func TestTraceRefuses(t *testing.T) {
	const s = time.Second
	lock := func(lease uint64, from time.Duration, token int64) []Event {
		return []Event{{What: Asks, Lease: lease, At: from, TTL: 3 * s}, {What: Granted, Lease: lease, At: from + 1, Token: token, Deadline: from + 3*s}}
	}
	lossAt := func(loss time.Duration) func(time.Duration) bool {
		return func(since time.Duration) bool { return since <= loss }
	}
	// waited is a lock that is asked for at 0 and granted at 4 s. A loss at 1 s excuses what is granted after.
	waited := func(since time.Duration) []Event {
		return []Event{{What: Asks, Lease: 9, TTL: 3 * s}, {What: Granted, Lease: 9, At: 4 * s, Since: since, Token: 1, Deadline: 7 * s}}
	}
	afterLoss := func(token int64) []Event {
		return []Event{{What: Asks, Lease: 2, At: 5 * s, TTL: 3 * s}, {What: Granted, Lease: 2, At: 5 * s, Since: 5 * s, Token: token, Deadline: 8 * s, Excused: lossAt(s)}}
	}
	unlock := func(lease uint64, at time.Duration) []Event {
		return []Event{{What: Unlocks, Lease: lease, At: at}, {What: Unlocked, Lease: lease, At: at + 1}}
	}
	// kept is a lock that was granted at 0, and taken again without a command. It lasts until 3 s.
	kept := func(lease uint64, at time.Duration, token int64) []Event {
		return []Event{{What: Asks, Lease: lease, At: at, TTL: 3 * s}, {What: Granted, Lease: lease, At: at + 1, Token: token, Deadline: 3 * s}}
	}
	renew := func(result What, at, deadline time.Duration) []Event {
		return []Event{{What: Renews, Lease: 1, At: at}, {What: result, Lease: 1, At: at + 1, TTL: 3 * s, Deadline: deadline, Since: deadline - 3*s}}
	}
	write := func(lease uint64, at time.Duration, result What) []Event {
		return []Event{{What: Writes, Lease: lease, At: at}, {What: result, Lease: lease, At: at + 1}}
	}
	// robbed is a lock for ten seconds that is lost at 2 s, and granted to another, which writes.
	robbed := slices.Concat([]Event{
		{What: Asks, Lease: 3, TTL: 10 * s}, {What: Granted, Lease: 3, At: 1, Token: 1, Deadline: 10 * s},
		{What: Asks, Lease: 4, At: 2 * s, TTL: 3 * s}, {What: Granted, Lease: 4, At: 2*s + 1, Since: 2 * s, Token: 2, Deadline: 5 * s, Excused: lossAt(2 * s)},
	}, write(4, 2500*time.Millisecond, Accepted))
	for name, c := range map[string]struct {
		events [][]Event
		wrong  bool
	}{
		"one after the other":          {[][]Event{lock(1, 0, 1), unlock(1, s), lock(2, 2*s, 2)}, false},
		"after the deadline":           {[][]Event{lock(1, 0, 1), lock(2, 4*s, 2)}, false},
		"unlocked, kept and taken":     {[][]Event{lock(1, 0, 1), unlock(1, s), kept(2, 2*s, 2), unlock(2, 2500*time.Millisecond), lock(3, 2600*time.Millisecond, 9)}, false},
		"kept, with the same token":    {[][]Event{lock(1, 0, 1), unlock(1, s), kept(2, 2*s, 1)}, true},
		"kept, and held on":            {[][]Event{lock(1, 0, 1), unlock(1, s), kept(2, 2*s, 2), {{What: Holds, Lease: 2, At: 3 * s}}}, true},
		"kept beside a holder":         {[][]Event{lock(1, 0, 1), unlock(1, s), lock(3, 1500*time.Millisecond, 9), kept(2, 2*s, 2)}, true},
		"kept after a holder":          {[][]Event{lock(1, 0, 1), unlock(1, s), lock(3, 1500*time.Millisecond, 9), unlock(3, 1600*time.Millisecond), kept(2, 2*s, 2)}, true},
		"beside one that was kept":     {[][]Event{lock(1, 0, 1), unlock(1, s), kept(2, 2*s, 2), lock(3, 2500*time.Millisecond, 9)}, true},
		"beside a holder":              {[][]Event{lock(1, 0, 1), lock(2, 2*s, 2)}, true},
		"beside one that died":         {[][]Event{lock(1, 0, 1), {{What: Died, Lease: 1, At: s}}, lock(2, 2*s, 2)}, false},
		"beside one that was lost":     {[][]Event{waited(s), afterLoss(2)}, false},
		"lost while it was asked for":  {[][]Event{waited(4 * s), afterLoss(2)}, true},
		"lost before it was renewed":   {[][]Event{lock(1, 0, 1), {{What: Holds, Lease: 1, At: 2500 * time.Millisecond, Since: 2500 * time.Millisecond, Deadline: 5500 * time.Millisecond}}, afterLoss(2)}, true},
		"the token repeats":            {[][]Event{lock(1, 0, 1), unlock(1, s), lock(2, 2*s, 1)}, true},
		"held past the deadline":       {[][]Event{lock(1, 0, 1), {{What: Holds, Lease: 1, At: 4 * s}}}, true},
		"renewed":                      {[][]Event{lock(1, 0, 1), {{What: Holds, Lease: 1, At: 4 * s, Deadline: 5 * s}}}, false},
		"renewed for too long":         {[][]Event{lock(1, 0, 1), {{What: Holds, Lease: 1, At: s, Deadline: 5 * s}}}, true},
		"renewed beside the next":      {[][]Event{lock(1, 0, 1), lock(2, 4*s, 2), {{What: Holds, Lease: 1, At: 5 * s, Deadline: 6 * s}}}, true},
		"renewed before the next":      {[][]Event{lock(1, 0, 1), lock(2, 4*s, 2), {{What: Lost, Lease: 1, At: 5 * s, Deadline: 3500 * time.Millisecond}}}, false},
		"unlocked late":                {[][]Event{lock(1, 0, 1), lock(2, 4*s, 2), {{What: Unlocks, Lease: 1, At: 5 * s, Deadline: 4 * s}}}, false},
		"renewed into the next":        {[][]Event{lock(1, 0, 1), lock(2, 4*s, 2), {{What: Lost, Lease: 1, At: 5 * s, Deadline: 4500 * time.Millisecond}}}, true},
		"held after the loss":          {[][]Event{lock(1, 0, 1), {{What: Lost, Lease: 1, At: s}, {What: Holds, Lease: 1, At: 2 * s}}}, true},
		"renewed after the loss":       {[][]Event{lock(1, 0, 1), {{What: Lost, Lease: 1, At: s}, {What: Unlocks, Lease: 1, At: s}}}, false},
		"extended after the loss":      {[][]Event{lock(1, 0, 1), {{What: Lost, Lease: 1, At: s}, {What: Lost, Lease: 1, At: 2 * s, Deadline: 4 * s}}}, true},
		"granted twice":                {[][]Event{lock(1, 0, 1), {{What: Granted, Lease: 1, At: s, Token: 2, Deadline: 3 * s}}}, true},
		"granted without a Lock":       {[][]Event{{{What: Granted, Lease: 1, At: s, Token: 2, Deadline: 3 * s}}}, true},
		"a grant for too long":         {[][]Event{{{What: Asks, Lease: 1, TTL: s}, {What: Granted, Lease: 1, At: 1, Token: 2, Deadline: 3 * s}}}, true},
		"a grant of the past":          {[][]Event{lock(1, 0, 2), unlock(1, s), {{What: Asks, Lease: 2, TTL: 3 * s}, {What: Granted, Lease: 2, At: 5 * s, Token: 1, Deadline: 3 * s}}}, false},
		"unlocked without Unlock":      {[][]Event{lock(1, 0, 1), {{What: Unlocked, Lease: 1, At: s}}}, true},
		"unlocked again":               {[][]Event{lock(1, 0, 1), {{What: Unlocks, Lease: 1, At: s}, {What: Failed, Lease: 1, At: s}}, unlock(1, 2*s)}, false},
		"unlocked when it is over":     {[][]Event{lock(1, 0, 1), unlock(1, s), unlock(1, 2*s)}, true},
		"re-entered":                   {[][]Event{lock(1, 0, 1), {{What: Reentered, Lease: 1, At: s, Token: 1}}}, false},
		"re-entered, another token":    {[][]Event{lock(1, 0, 1), {{What: Reentered, Lease: 1, At: s, Token: 2}}}, true},
		"re-entered after the loss":    {[][]Event{lock(1, 0, 1), {{What: Lost, Lease: 1, At: s}, {What: Reentered, Lease: 1, At: s, Token: 1}}}, true},
		"renewed by hand":              {[][]Event{lock(1, 0, 1), renew(Renewed, s, 4*s)}, false},
		"a renewal that does nothing":  {[][]Event{lock(1, 0, 1), renew(Renewed, s, 3*s)}, true},
		"a renewal that fails":         {[][]Event{lock(1, 0, 1), renew(Unrenewed, s, 3*s)}, false},
		"a renewal that finds a loss":  {[][]Event{lock(1, 0, 1), renew(Lost, s, 3*s), unlock(1, 2*s)}, false},
		"a renewal after the loss":     {[][]Event{lock(1, 0, 1), {{What: Lost, Lease: 1, At: s}}, renew(Renewed, 2*s, 5*s)}, true},
		"a renewal that is not called": {[][]Event{lock(1, 0, 1), renew(Renewed, s, 4*s)[1:]}, true},
		"a renewal past the deadline":  {[][]Event{lock(1, 0, 1), renew(Renewed, 4*s, 7*s)}, true},
		"a renewal late after another": {[][]Event{lock(1, 0, 1), {{What: Renews, Lease: 1, At: 4 * s, Deadline: 5 * s}, {What: Renewed, Lease: 1, At: 4*s + 1, TTL: 3 * s, Deadline: 7 * s}}}, false},
		"a renewal after Unlock":       {[][]Event{lock(1, 0, 1), {{What: Unlocks, Lease: 1, At: s}}, renew(Renewed, 2*s, 5*s)}, true},

		"a write":                           {[][]Event{lock(1, 0, 1), write(1, s, Accepted), write(1, s+9, Accepted)}, false},
		"a write of the past":               {[][]Event{lock(1, 0, 1), lock(2, 4*s, 2), write(2, 5*s, Accepted), write(1, 6*s, Rejected)}, false},
		"a write of the past, accepted":     {[][]Event{lock(1, 0, 1), lock(2, 4*s, 2), write(2, 5*s, Accepted), write(1, 6*s, Accepted)}, true},
		"a write of the past comes first":   {[][]Event{lock(1, 0, 1), lock(2, 4*s, 2), write(1, 5*s, Accepted), write(2, 6*s, Accepted)}, false},
		"two writes at once":                {[][]Event{lock(1, 0, 1), lock(2, 4*s, 2), {{What: Writes, Lease: 1, At: 5 * s}}, write(2, 6*s, Accepted), {{What: Accepted, Lease: 1, At: 7 * s}}}, false},
		"refused by one under way":          {[][]Event{lock(1, 0, 1), lock(2, 4*s, 2), {{What: Writes, Lease: 2, At: 5 * s}}, write(1, 6*s, Rejected)}, false},
		"a write that is not sent":          {[][]Event{lock(1, 0, 1), write(1, s, Accepted)[1:]}, true},
		"refused, and accepted later":       {[][]Event{lock(1, 0, 1), lock(2, 4*s, 2), {{What: Writes, Lease: 2, At: 5 * s}}, write(1, 6*s, Rejected), write(1, 7*s, Accepted)}, true},
		"refused, and renewed":              {[][]Event{robbed, write(3, 3*s, Rejected), {{What: Renews, Lease: 3, At: 4 * s}, {What: Renewed, Lease: 3, At: 4*s + 1, Deadline: 14 * s}}}, true},
		"refused without a reason":          {[][]Event{lock(1, 0, 1), write(1, s, Rejected)}, true},
		"refused, and nobody else wrote":    {[][]Event{lock(1, 0, 1), lock(2, 4*s, 2), write(1, 5*s, Rejected)}, true},
		"refused, and held on":              {[][]Event{robbed, write(3, 3*s, Rejected), {{What: Holds, Lease: 3, At: 4 * s}}}, true},
		"refused, and held on after a loss": {[][]Event{robbed, write(3, 3*s, Rejected), {{What: Holds, Lease: 3, At: 4 * s, Excused: lossAt(2 * s)}}}, false},

		"refused, and held":          {[][]Event{{{What: Asks, Lease: 1, TTL: s}, {What: Refused, Lease: 1, At: 1}, {What: Holds, Lease: 1, At: 2}}}, true},
		"asked for twice, one lease": {[][]Event{lock(1, 0, 1), {{What: Asks, Lease: 1, At: s, TTL: s}}}, true},
	} {
		if err := replay(NewTrace(0), c.events...); (err != nil) != c.wrong {
			t.Errorf("%s: %v, want it refused: %t", name, err, c.wrong)
		}
	}
}

// replay takes events up to one that is no step.
func replay(t *Trace, events ...[]Event) error {
	for _, e := range slices.Concat(events...) {
		if err := t.Step(e); err != nil {
			return err
		}
	}
	return nil
}

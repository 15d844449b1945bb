package simulation

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/conformance"
)

// variant is a kind of driver.
type variant int

const (
	notified      variant = iota // strategy/memory: wake-ups, permits, signals
	polls                        // strategy/memory without all these
	countingHolds                // wake-ups, and a store that counts holds
	variants
)

func (v variant) String() string { return [...]string{"notified", "polling", "counting"}[v] }

// Result is what came of a history.
type Result struct {
	Seed       uint64
	Title      string // what the seed has chosen
	Operations int    // calls of Lock, TryLock, Renew, Unlock and LetExpire
	Granted    int
	Kept       int // those that were granted without a command, of kept locks
	Lost       int
	Faults     int
	Violations []string
	log        []event
	from, to   time.Duration // around the first violation
}

// event is a line of the log.
type event struct {
	at   time.Duration
	text string
}

// History returns what happened around the first violation, in its order.
func (r *Result) History() string {
	var lines []string
	for _, e := range r.log {
		if r.from <= e.at && e.at <= r.to {
			lines = append(lines, fmt.Sprintf("%12v  %s", e.at, e.text))
		}
	}
	return strings.Join(lines, "\n")
}

// world is one history.
type world struct {
	seed    uint64
	r       chance // of what is drawn before callers begin
	variant variant
	calm    bool          // no faults, and a near store
	fenced  bool          // grants have tokens
	far     time.Duration // the longest time on the way
	grain   time.Duration // times are multiples of it
	ttls    []time.Duration
	keys    []string
	rw      bool // some callers read and write
	sticky  bool // some Lockers keep locks
	foreign bool // some contexts are of the callers' own types
	panics  bool // some calls of Watch panic
	store   *store
	audit   *audit
	procs   []*process
	grants  atomic.Int64 // that the store has made
	ending  atomic.Bool  // no command is late any more
	began   time.Time

	mu      sync.Mutex
	result  Result
	holds   []*hold
	waits   map[*op]struct{} // calls of Lock under way
	breaks  []broken
	trouble time.Duration // faults may have an effect until then
}

// process is one Locker.
type process struct {
	w       *world
	index   int
	faults  *conformance.Injector
	l       *locker.Client
	events  eventCount
	asking  map[string]int // calls under way, by key
	calls   int            // that are to have an event
	closed  bool           // or about to be
	closing sync.Once
	twice   atomic.Bool // a release may have arrived twice: the answer to the second is a loss
}

// Play plays the history of a seed. It must be called in a bubble of testing/synctest.
func Play(seed uint64) *Result {
	w := newWorld(seed)
	var callers sync.WaitGroup
	over, stop := context.WithCancel(context.Background())
	var beside sync.WaitGroup
	for i := range w.r.IntN(5) + 2 + 2*len(w.procs) {
		c := newCaller(w, i)
		callers.Go(c.run)
	}
	if !w.calm {
		beside.Go(func() { w.nemesis(over) })
	}
	beside.Go(func() { w.lookForStalls(over) })
	callers.Wait()
	stop()
	beside.Wait()
	w.finish()
	w.check()
	return &w.result
}

func newWorld(seed uint64) *world {
	r := newChance(seed, -1)
	w := &world{
		seed: seed, r: r, variant: variant(r.IntN(int(variants))), calm: r.oneIn(3), fenced: !r.oneIn(8), rw: r.oneIn(3), began: time.Now(),
		far: pick(r, 0, time.Millisecond, 5*time.Millisecond, 20*time.Millisecond), grain: pick(r, 1, time.Millisecond, 5*time.Millisecond, 20*time.Millisecond),
		ttls: pick(r, []time.Duration{300 * time.Millisecond}, []time.Duration{time.Second}, []time.Duration{100 * time.Millisecond, time.Second}),
		keys: []string{"a", "b", "c"}[:1+r.IntN(3)], waits: map[*op]struct{}{},
	}
	if w.calm {
		w.far = min(w.far, w.ttls[0]/60)
	}
	stick := newChance(seed, -3) // apart from r: so what a seed has drawn before there were kept locks is as it was
	w.sticky = w.variant == notified && stick.oneIn(2)
	foreign := newChance(seed, -4) // apart from r, too
	w.foreign, w.panics = foreign.oneIn(4), w.calm && w.variant != polls && foreign.oneIn(3)
	w.store, w.audit = newStore(w.variant == countingHolds), newAudit(w)
	for i := range 1 + r.IntN(3) {
		w.procs = append(w.procs, w.newProcess(i, stick))
	}
	w.result.Seed = seed
	w.result.Title = fmt.Sprintf("%v, %d Lockers, calm %t, fencing %t, readers %t, locks are kept %t, contexts of own types %t, drivers panic %t, TTLs %v, up to %v away in steps of %v", w.variant, len(w.procs), w.calm, w.fenced, w.rw, w.sticky, w.foreign, w.panics, w.ttls, w.far, w.grain)
	return w
}

func (w *world) newProcess(i int, stick chance) *process {
	p := &process{w: w, index: i, faults: &conformance.Injector{}, asking: map[string]int{}}
	opts := []locker.Option{locker.WithTTL(w.ttls[0]), locker.WithObserver(&p.events)}
	if !w.fenced {
		opts = append(opts, locker.WithoutFencing())
	}
	switch {
	case w.r.oneIn(4):
		opts = append(opts, locker.WithoutHandOver())
	case w.r.oneIn(3):
		opts = append(opts, locker.WithHandOver(2, 500*time.Millisecond))
	}
	if w.sticky && !stick.oneIn(3) {
		opts = append(opts, locker.WithSticky(pick(stick, time.Millisecond, 50*time.Millisecond, 300*time.Millisecond, time.Second)))
	}
	k := &link{w: w, locker: i, r: newChance(w.seed, -10-i), pending: map[string]<-chan struct{}{}}
	l, err := locker.New(w.store.open(w.variant, k, p.faults), opts...)
	if err != nil {
		panic(err)
	}
	p.l = l
	return p
}

func (w *world) now() time.Duration { return time.Since(w.began) }

// note adds an event to the log. It needs the mutex.
func (w *world) note(format string, args ...any) {
	w.result.log = append(w.result.log, event{w.now(), fmt.Sprintf(format, args...)})
}

func (w *world) tell(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.note(format, args...)
}

const mostViolations = 5

func (w *world) violate(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.violated(format, args...)
}

// violated needs the mutex.
func (w *world) violated(format string, args ...any) {
	w.violatedIn(w.now()-time.Second, w.now(), format, args...)
}

// violatedIn is violated for what happened between two times. It needs the mutex.
func (w *world) violatedIn(from, to time.Duration, format string, args ...any) {
	r := &w.result
	if len(r.Violations) == 0 {
		r.from, r.to = from-100*time.Millisecond, to+100*time.Millisecond
	}
	w.note("VIOLATION: "+format, args...)
	if len(r.Violations) < mostViolations {
		r.Violations = append(r.Violations, fmt.Sprintf("after %v: ", w.now())+fmt.Sprintf(format, args...))
	}
}

// close closes the Locker.
func (p *process) close() {
	p.closing.Do(func() {
		p.w.mu.Lock()
		p.closed = true
		p.w.mu.Unlock()
		began := p.w.now()
		if err := p.l.Close(); err != nil && p.w.calm {
			p.w.violate("Close of locker %d: %v", p.index, err)
		}
		if took := p.w.now() - began; took > 5*time.Second+10*time.Millisecond {
			p.w.violate("Close of locker %d took %v, want 5s at most", p.index, took)
		}
	})
}

func (p *process) isClosed() bool {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	return p.closed
}

// finish waits until nothing can be left, looks, locks each key once more, and closes all.
func (w *world) finish() {
	w.ending.Store(true)
	for _, p := range w.procs {
		_ = p.faults.Heal()
	}
	time.Sleep(15 * time.Second)
	for _, p := range w.procs {
		if st := p.l.Stats(); st.Locks+st.Leases+st.Waiting+st.Background > 0 {
			w.violate("15 s after the last Unlock locker %d has %d locks, %d leases, %d waiting calls, %d background tasks, want none", p.index, st.Locks, st.Leases, st.Waiting, st.Background)
		}
	}
	for _, key := range w.keys {
		if h := w.store.at(key); h.Held || h.Waiting > 0 {
			w.violate("15 s after the last Unlock the store has %s: held %t, %d watches; want it free", key, h.Held, h.Waiting)
		}
		for _, p := range w.procs {
			if p.isClosed() {
				continue
			}
			l, err := p.l.Lock(context.Background(), key, locker.WithWait(time.Second))
			if err != nil {
				w.violate("at the end %s is free, and Lock by locker %d: %v", key, p.index, err)
				continue
			}
			if err := l.Unlock(context.Background()); err != nil {
				w.violate("at the end the Unlock of %s by locker %d: %v", key, p.index, err)
			}
			p.calls++
		}
	}
	time.Sleep(2 * time.Second) // watches linger for a second
	for _, p := range w.procs {
		p.close()
	}
}

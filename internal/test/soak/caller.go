package soak

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/internal/bound"
)

const (
	hotKeys      = 4                      // one call in four is for one of these
	patient      = 6 * time.Second        // the longest wait
	unlockWithin = 3 * time.Second        // the context given to Unlock
	lateUnlock   = 5 * time.Second        // how long an Unlock tries whose context had ended before the call
	beginsWithin = 200 * time.Millisecond // how long after its record an Unlock may begin on a busy machine
)

// caller is one goroutine that locks with one strategy.
type caller struct {
	*worker
	strategy int
	locker   locker.Locker
	permits  int // of each key; 0: they are locks
	id       int
	r        *rand.Rand
}

func newCaller(w *worker, strategy, id int) *caller {
	return &caller{
		worker: w, strategy: strategy, locker: w.lockers[strategy], permits: w.strategies[strategy].Permits, id: id,
		r: rand.New(rand.NewPCG(w.Seed, uint64(strategy)<<32|uint64(id))),
	}
}

func (c *caller) run() {
	for c.ctx.Err() == nil {
		c.once()
	}
}

func (c *caller) upTo(d time.Duration) time.Duration { return time.Duration(c.r.Int64N(int64(d) + 1)) }

func (c *caller) oneIn(n int) bool { return c.r.IntN(n) == 0 }

// section is one Lock and what is done while it holds.
type section struct {
	c     *caller
	key   string
	ttl   time.Duration
	rec   record // what its records have in common
	lease *locker.Lease
}

// once locks, does this and that, and unlocks.
func (c *caller) once() {
	n := c.r.IntN(c.Keys)
	if c.oneIn(4) {
		n = c.r.IntN(min(hotKeys, c.Keys))
	}
	s := &section{
		c: c, key: c.strategies[c.strategy].key(n), ttl: c.TTLs[c.r.IntN(len(c.TTLs))],
		rec: record{Strategy: uint8(c.strategy), Caller: uint16(c.id), Key: uint16(n), Op: c.ops.Add(1)},
	}
	s.operate()
	if n%2 == 0 { // a claim can be kept for callers that want the same
		s.ttl = c.TTLs[n/2%len(c.TTLs)]
	}
	opts, hold := []locker.LockOption{locker.WithTTL(s.ttl)}, time.Duration(0)
	switch n := c.r.IntN(1000); {
	case n < 960:
		hold = c.upTo(time.Millisecond)
	case n < 980:
		hold = c.upTo(s.ttl / 4)
	case n < 990:
		hold = c.upTo(5 * s.ttl / 2) // renewed
	default:
		hold = c.upTo(2 * s.ttl) // past the deadline
		opts = append(opts, locker.WithoutRenewal())
	}
	if !s.acquire(opts) {
		// A refusal costs little; do not count millions.
		time.Sleep(time.Millisecond + c.upTo(9*time.Millisecond))
		return
	}
	s.work(hold)
	s.unlock(0, s.lease)
}

// note logs a record, by default with the present time.
func (s *section) note(r record) {
	if r.At == 0 {
		r.At = now()
	}
	r.Strategy, r.Caller, r.Key, r.Op = s.rec.Strategy, s.rec.Caller, s.rec.Key, s.rec.Op
	if r.isCall() {
		s.c.calls.Add(1)
	}
	s.c.log.add(r)
}

// returned logs the end of a call, and in words an error that nothing calls for.
func (s *section) returned(kind kind, f flags, err error) {
	r := record{Kind: kind, Flags: f, At: now(), Result: resultOf(err), Deadline: s.deadline()}
	if !r.isCalledFor() {
		fmt.Fprintf(os.Stderr, "op %d: %v: %v\n", s.rec.Op, kind, err)
	}
	s.note(r)
}

// granted logs a grant.
func (s *section) granted(f flags, l *locker.Lease) {
	t := now()
	s.note(record{Kind: recGranted, Flags: f, At: t, Token: l.Token(), Deadline: at(l.Deadline())})
}

// deadline returns the deadline of the lease, if there is one.
func (s *section) deadline() instant {
	if s.lease == nil {
		return 0
	}
	return at(s.lease.Deadline())
}

func (s *section) acquire(opts []locker.LockOption) bool {
	c, ctx := s.c, s.c.ctx
	wait := 20*time.Millisecond + c.upTo(min(4*s.ttl, patient))
	if c.oneIn(10) {
		wait = patient
	}
	n := c.weight()
	call := record{Kind: recLock, TTL: uint32(s.ttl.Milliseconds()), Permits: uint32(n)}
	lock, tryLock := c.lock(n)
	switch n := c.r.IntN(10); {
	case n < 3:
		lock, wait, call.Flags = tryLock, 0, flagTry
	case n < 6:
		opts = append(opts, locker.WithWait(wait))
	default:
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, wait)
		defer cancel()
	}
	call.Wait = uint32(wait.Milliseconds())
	s.note(call)
	lease, err := lock(ctx, s.key, opts...)
	if err != nil {
		s.returned(recRefused, 0, err)
		return false
	}
	s.lease = lease
	s.granted(0, lease)
	return true
}

// ask asks the lease whether it is held.
func (s *section) ask(ctx context.Context) bool {
	// In this order: what was over at t stays over.
	r := record{Kind: recAsk, At: now(), Deadline: s.deadline()}
	held := ctx.Err() == nil
	if held {
		r.Flags = flagYes
	} else {
		r.Deadline = s.deadline() // a renewal may have moved it before the loss; from now on it stays
	}
	s.note(r)
	return held
}

// work does the critical section.
func (s *section) work(hold time.Duration) {
	c, held := s.c, s.lease.Context(context.Background())
	s.listen()
	end := time.Now().Add(hold)
	if c.permits == 0 && c.oneIn(8) {
		s.reenter(held)
	}
	if c.oneIn(4) {
		s.write(held)
	}
	if c.oneIn(20) {
		s.renew()
	}
	for left := hold; left > 0 && c.ctx.Err() == nil; left = time.Until(end) {
		lost := s.lostWithin(min(left, s.ttl/8+c.upTo(s.ttl/8)))
		if !s.ask(held) || lost {
			if !lost {
				s.lostWithin(patient) // it is to be told, too
			}
			if c.oneIn(2) { // sections need not hurry
				time.Sleep(c.upTo(s.ttl))
			}
			break
		}
	}
	if hold > s.ttl/4 {
		s.write(held) // without another look at the lease: the resource has to refuse a late write
	}
}

// lostWithin waits for Lost to be closed.
func (s *section) lostWithin(d time.Duration) bool {
	if bound.Sleep(context.Background(), s.lease.Lost(), d) {
		return false
	}
	s.note(record{Kind: recLost, Deadline: s.deadline()})
	return true
}

// write writes to the resource, and asks whether the lease is held if that was refused.
func (s *section) write(held context.Context) {
	if s.c.permits > 0 {
		return // the tokens of permits are no fence
	}
	s.note(record{Kind: recWriting})
	accepted, err := s.c.resource.write(s.key, s.lease.Token())
	if err != nil {
		fmt.Fprintf(os.Stderr, "op %d: the resource: %v\n", s.rec.Op, err)
		return
	}
	r := record{Kind: recWrite, Token: s.lease.Token()}
	if accepted {
		r.Flags = flagYes
	}
	s.note(r)
	if !accepted {
		s.ask(held)
	}
}

// renew renews by hand.
func (s *section) renew() {
	ctx, cancel := context.WithTimeout(context.Background(), s.ttl)
	defer cancel()
	s.note(record{Kind: recRenew, At: now(), Deadline: s.deadline()}) // in this order: what is over at At stays over
	s.returned(recRenewed, 0, s.lease.Renew(ctx))
}

// reenter locks once more under the lease, and gives that back.
func (s *section) reenter(held context.Context) {
	s.note(record{Kind: recLock, Flags: flagInner}) // before its time begins
	ctx, cancel := context.WithTimeout(held, s.ttl)
	defer cancel()
	inner, err := s.c.locker.Lock(ctx, s.key)
	if err != nil {
		s.returned(recRefused, flagInner, err)
		return
	}
	s.granted(flagInner, inner)
	s.unlock(flagInner, inner)
}

// unlock gives a lease back, and tries again as long as there was no answer.
func (s *section) unlock(f flags, l *locker.Lease) {
	for range 3 {
		ctx, cancel := context.WithTimeout(context.Background(), unlockWithin)
		s.note(record{Kind: recUnlock, Flags: f, Deadline: s.deadline()})
		err := l.Unlock(ctx)
		s.returned(recUnlocked, f, err)
		cancel()
		if resultOf(err) != resUnavailable {
			break
		}
	}
}

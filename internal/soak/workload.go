package soak

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"time"

	"github.com/distlock/locker"
)

const (
	hotKeys      = 4               // one call in four is for one of these
	teamKeys     = 8               // one key in so many is locked by teams
	patient      = 6 * time.Second // the longest wait
	unlockWithin = 3 * time.Second // the context given to Unlock
)

// caller is one goroutine that locks.
type caller struct {
	*worker
	locker locker.Locker
	visits bool // with a Locker of its own
	id     int
	r      *rand.Rand
}

func newCaller(w *worker, id int) *caller {
	return &caller{worker: w, locker: w.locker, id: id, r: rand.New(rand.NewPCG(w.Seed, uint64(id)))}
}

func (c *caller) run() {
	for !c.draining.Load() {
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
	hold  time.Duration
	flags flags
	rec   record // what its records have in common
	lease *locker.Lease
	limit time.Duration // by which the lease ends; 0: none
	lost  bool          // Lost was seen
}

// section draws lots for a key.
func (c *caller) section() *section {
	s := &section{c: c, ttl: c.TTLs[c.r.IntN(len(c.TTLs))]}
	n := c.r.IntN(c.Keys)
	if c.oneIn(4) {
		n = c.r.IntN(min(hotKeys, c.Keys))
	}
	s.key = keyText(uint16(n))
	s.rec = record{caller: uint16(c.id), key: uint16(n), op: c.ops.Add(1)}
	return s
}

// once locks, does this and that, and unlocks.
func (c *caller) once() {
	s := c.section()
	if s.isTeams() {
		s.rec.team = team(1 + c.r.IntN(2))
		// TTL and limits are those of the team's first lease.
		s.ttl = slices.Max(c.TTLs)
	}
	if c.oneIn(200) {
		s.misuse()
	}
	ctx, opts, wait := s.plan()
	if !s.acquire(ctx, opts, wait) {
		// A refusal costs little; do not count millions.
		time.Sleep(time.Millisecond + c.upTo(9*time.Millisecond))
		return
	}
	s.work(ctx)
	s.unlock(0, s.lease)
}

// isTeams reports whether teams lock the key.
func (s *section) isTeams() bool {
	return int(s.rec.key) >= s.c.Keys-s.c.Keys/teamKeys
}

// misuse makes a call that has to be refused as invalid.
func (s *section) misuse() {
	ctx, key := context.Background(), s.key
	var opts []locker.LockOption
	switch s.c.r.IntN(5) {
	case 0:
		key = ""
	case 1:
		key = "\xff"
	case 2:
		opts = append(opts, locker.WithTTL(time.Microsecond))
	case 3:
		opts = append(opts, locker.WithWait(-1))
	default:
		ctx = locker.ContextWithOwner(ctx, "")
	}
	if lease, err := s.c.locker.Lock(ctx, key, opts...); !errors.Is(err, locker.ErrInvalid) {
		s.wrong("an invalid Lock returned %v, %v", lease, err)
	}
}

// wrong logs that something was answered as it never must be.
func (s *section) wrong(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "op %d: %s\n", s.rec.op, fmt.Sprintf(format, args...))
	s.note(recWrong, now(), record{})
}

// plan draws lots for the options.
func (s *section) plan() (ctx context.Context, opts []locker.LockOption, wait time.Duration) {
	c := s.c
	ctx = context.Background()
	opts = []locker.LockOption{locker.WithTTL(s.ttl)}
	switch wait = s.wait(); {
	case c.r.IntN(10) < 3:
		s.flags |= flagTry
		wait = 0
	case c.oneIn(2):
		opts = append(opts, locker.WithWait(wait))
	default:
		s.flags |= flagCtx
	}
	if s.rec.team != 0 {
		ctx = locker.ContextWithOwner(ctx, fmt.Sprint("team ", s.rec.team))
	} else if c.oneIn(10) {
		ctx = locker.ContextWithOwner(ctx, fmt.Sprintf("p%d-%x-%d", c.Process, c.Seed, s.rec.op))
	}
	switch n := c.r.IntN(1000); {
	case n < 960:
		s.hold = c.upTo(time.Millisecond)
	case n < 980:
		s.hold = c.upTo(s.ttl / 4)
	case n < 988:
		s.hold = c.upTo(5 * s.ttl / 2) // renewed
	case n < 994:
		s.hold = c.upTo(2 * s.ttl) // past the deadline
		s.flags |= flagUnrenewed
		opts = append(opts, locker.WithoutRenewal())
	case s.rec.team != 0:
		s.hold = c.upTo(2 * s.ttl)
	case n < 997:
		s.hold = c.upTo(2 * s.ttl)
		s.flags |= flagLimited
		s.limit = time.Millisecond + c.upTo(s.ttl)
		opts = append(opts, locker.WithMaxHold(s.limit))
	default:
		s.hold = c.upTo(4 * s.ttl)
		s.flags |= flagLimited
		s.limit = 5 * s.ttl / 2 // the first term, one by hand, and a late one of the watchdog's
		opts = append(opts, locker.WithMaxRenewals(1))
	}
	return ctx, opts, wait
}

// wait draws lots for how long to wait at most.
func (s *section) wait() time.Duration {
	if s.c.oneIn(10) {
		return patient
	}
	return 20*time.Millisecond + s.c.upTo(min(4*s.ttl, patient))
}

// note logs that kind happened at t.
func (s *section) note(kind recordKind, t instant, more record) {
	r := s.rec
	r.kind, r.at = kind, t
	r.flags = s.flags | more.flags
	r.result, r.token, r.deadline, r.ttl, r.wait = more.result, more.token, more.deadline, more.ttl, more.wait
	s.c.log.add(r)
}

// ended logs the end of a call, and an error nobody expects in words.
func (s *section) ended(kind recordKind, err error, more record) {
	t := now()
	more.result = resultOf(err)
	if more.result == resOther {
		fmt.Fprintf(os.Stderr, "op %d: %v: %v\n", s.rec.op, kind, err)
	}
	s.note(kind, t, more)
}

func (s *section) acquire(ctx context.Context, opts []locker.LockOption, wait time.Duration) bool {
	lock := s.c.locker.Lock
	if s.flags&flagTry != 0 {
		lock = s.c.locker.TryLock
	}
	s.note(recLock, now(), record{ttl: uint32(s.ttl.Milliseconds()), wait: uint32(wait.Milliseconds())})
	if s.flags&flagCtx != 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, wait) // from now on: a refusal before its end is early
		defer cancel()
	}
	lease, err := lock(ctx, s.key, opts...)
	if err != nil {
		s.ended(recRefused, err, record{})
		return false
	}
	t := now()
	s.lease = lease
	if !s.c.visits {
		s.c.account.saw(s.key, lease.Token())
	}
	s.note(recGranted, t, record{token: lease.Token(), deadline: at(lease.Deadline()), wait: uint32(s.limit.Microseconds())})
	return true
}

// ask asks the lease whether it is held.
func (s *section) ask(ctx context.Context) bool {
	// In this order: what was over at t stays over.
	t := now()
	deadline := at(s.lease.Deadline())
	held := ctx.Err() == nil
	r := record{deadline: deadline}
	if held {
		r.flags = flagYes
	}
	s.note(recAsk, t, r)
	return held
}

// work is what is done under the lock.
func (s *section) work(ctx context.Context) {
	c := s.c
	held := s.lease.Context(context.WithoutCancel(ctx))
	end := time.Now().Add(s.hold)
	if c.oneIn(8) {
		defer s.reenter(held)()
	}
	if c.oneIn(4) {
		s.write(held)
	}
	if c.oneIn(20) {
		s.renew()
	}
	for {
		left := time.Until(end)
		if left <= 0 {
			break
		}
		timer := time.NewTimer(min(left, s.ttl/8+c.upTo(s.ttl/8)))
		select {
		case <-timer.C:
		case <-s.lease.Lost():
			timer.Stop()
			s.note(recLost, now(), record{deadline: at(s.lease.Deadline())})
			s.lost = true
		}
		if !s.ask(held) || s.lost {
			if c.oneIn(2) { // nobody has told it to hurry
				time.Sleep(c.upTo(s.ttl))
			}
			break
		}
	}
	if s.hold > s.ttl/4 {
		s.write(held) // the caller does not look again: that is the resource's to do
	}
}

// write writes to the resource, and asks whether the lease is held if that was
// refused.
func (s *section) write(held context.Context) {
	if s.lease.Token() == 0 {
		return // it was not asked for
	}
	t := now()
	accepted, err := s.c.resource.write(context.Background(), s.key, s.lease.Token())
	if err != nil {
		fmt.Fprintf(os.Stderr, "op %d: the resource: %v\n", s.rec.op, err)
		return
	}
	r := record{token: s.lease.Token(), deadline: now()}
	if accepted {
		r.flags = flagYes
	}
	s.note(recWrite, t, r)
	if !accepted {
		s.ask(held)
	}
}

// renew renews by hand.
func (s *section) renew() {
	ctx, cancel := context.WithTimeout(context.Background(), s.ttl)
	defer cancel()
	s.note(recRenew, now(), record{})
	err := s.lease.Renew(ctx)
	s.ended(recRenewed, err, record{deadline: at(s.lease.Deadline())})
}

// reenter locks once more under the lease, and returns what gives that back.
func (s *section) reenter(held context.Context) (undo func()) {
	ctx, cancel := context.WithTimeout(held, s.ttl)
	defer cancel()
	s.note(recLock, now(), record{flags: flagInner, ttl: uint32(s.ttl.Milliseconds()), wait: uint32(s.ttl.Milliseconds())})
	inner, err := s.c.locker.Lock(ctx, s.key)
	if err != nil {
		s.ended(recRefused, err, record{flags: flagInner})
		return func() {}
	}
	s.note(recGranted, now(), record{flags: flagInner, token: inner.Token(), deadline: at(inner.Deadline())})
	return func() { s.unlock(flagInner, inner) }
}

// unlock gives lease back, and again as long as there was no answer.
func (s *section) unlock(inner flags, lease *locker.Lease) {
	for try := 0; ; try++ {
		ctx, cancel := context.WithTimeout(context.Background(), unlockWithin)
		deadline := at(lease.Deadline())
		s.note(recUnlock, now(), record{flags: inner, deadline: deadline})
		err := lease.Unlock(ctx)
		s.ended(recUnlocked, err, record{flags: inner})
		cancel()
		if resultOf(err).available() || try == 2 {
			break
		}
	}
	if s.c.oneIn(50) { // once too often
		s.note(recUnlock, now(), record{flags: inner})
		s.ended(recUnlocked, lease.Unlock(context.Background()), record{flags: inner})
	}
}

package conformance_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/conformance"
	"github.com/distlock/locker/driver"
	"github.com/distlock/locker/internal/uuid"
)

// fakeStore is a store in memory that can do all the suite knows of: hold
// counts, notifications, fairness, and every fault. So the whole suite runs
// without a server, and strategies broken on purpose are made of it.
type fakeStore struct {
	conformance.Injector
	mu      sync.Mutex
	locks   map[string]*fakeLock
	tokens  map[string]int64 // by key, "" for the last of all
	foreign map[string]string
	garbage map[string]time.Duration // other things broken drivers leave
	watches map[*fakeWatch]struct{}
	tickets map[string][]string // ids of waiting Lockers, by key
	deaf    time.Time           // no notifications until then, once they were cut

	trouble  error // what it answers to every command; nil: it is well
	persists bool
	forgot   bool // its scripts
}

// The troubles the store can be in.
var fakeTroubles = []conformance.Trouble{
	{Name: "Full", Permanent: true, Words: "out of memory"},
	{Name: "Starting", Words: "loading"},
	{Name: "Stuck"},
}

type fakeLock struct {
	owner string
	holds map[string]*fakeHold // by claim
	token int64
}

type fakeHold struct {
	n     int
	until time.Time
}

// until is when the last hold ends.
func (l *fakeLock) until() (end time.Time) {
	for _, h := range l.holds {
		if h.until.After(end) {
			end = h.until
		}
	}
	return end
}

// extend makes claim id's hold last for ttl at least.
func (l *fakeLock) extend(id string, ttl time.Duration) {
	h := l.holds[id]
	if until := time.Now().Add(ttl); until.After(h.until) {
		h.until = until
	}
}

func newFakeStore() *fakeStore {
	return &fakeStore{
		locks: map[string]*fakeLock{}, tokens: map[string]int64{}, foreign: map[string]string{},
		garbage: map[string]time.Duration{}, watches: map[*fakeWatch]struct{}{}, tickets: map[string][]string{},
	}
}

// command has the store apply a command, unless there are faults.
func (s *fakeStore) command(ctx context.Context, op conformance.Op, apply func()) error {
	time.Sleep(time.Duration(rand.IntN(100)) * time.Microsecond) // the way to a store
	if err := ctx.Err(); err != nil {
		return &driver.StoreError{Err: err, NotApplied: true}
	}
	return s.Command(ctx, op, func(ctx context.Context) error {
		s.mu.Lock()
		trouble := s.trouble
		if trouble == nil {
			apply()
		}
		s.mu.Unlock()
		return trouble
	})
}

// live returns the lock at key, or nil. s.mu is held.
func (s *fakeStore) live(key string) *fakeLock {
	l := s.locks[key]
	if l == nil {
		return nil
	}
	maps.DeleteFunc(l.holds, func(_ string, h *fakeHold) bool { return !time.Now().Before(h.until) })
	if len(l.holds) == 0 {
		delete(s.locks, key)
		return nil
	}
	return l
}

// drop frees key and tells those who wait. s.mu is held.
func (s *fakeStore) drop(key string) {
	delete(s.locks, key)
	if time.Now().Before(s.deaf) {
		return
	}
	for w := range s.watches {
		if w.key == key && !(w.d.stuck && !s.deaf.IsZero()) {
			w.signal()
		}
	}
}

func (s *fakeStore) token(key string) int64 {
	// The clock keeps tokens growing after a flush of the counters.
	s.tokens[key] = max(s.tokens[key]+1, time.Now().UnixMicro())
	return s.tokens[key]
}

// driver is a driver that polls, the base of the others.
type fakeDriver struct {
	s *fakeStore
	// counts: another claim of the same named owner is let in.
	counts bool
	fair   bool
	id     string // of the Locker

	stuck bool // once notifications were cut
}

func (d *fakeDriver) Name() string { return "fake" }
func (d *fakeDriver) Close() error { return nil }

func (d *fakeDriver) Configure(c driver.Config) (driver.Settings, error) {
	d.id = uuid.New(4)
	if len(c.Options) > 0 {
		return driver.Settings{}, fmt.Errorf("%w: no such option: %v", locker.ErrInvalid, c.Options[0])
	}
	return driver.Settings{}, nil
}

func (d *fakeDriver) Acquire(ctx context.Context, req driver.Request) (a driver.Answer, err error) {
	cerr := d.s.command(ctx, conformance.OpAcquire, func() { a, err = d.acquire(req) })
	if cerr != nil {
		return driver.Answer{}, cerr
	}
	return a, err
}

func (d *fakeDriver) acquire(req driver.Request) (driver.Answer, error) {
	s := d.s
	switch s.foreign[req.Key] {
	case "lock":
		return driver.Answer{NoWakeUp: true}, nil
	case "thing":
		return driver.Answer{}, fmt.Errorf("%w: it is a thing", locker.ErrConflict)
	}
	l, tokens := s.live(req.Key), 0
	switch {
	case l == nil && d.fair && !d.turn(req):
		return driver.Answer{}, nil
	case l == nil:
		l = &fakeLock{owner: req.Owner, holds: map[string]*fakeHold{}}
		if req.Fencing {
			l.token = s.token(req.Key)
			if tokens = req.Tokens; tokens > 1 {
				s.tokens[req.Key] += int64(tokens) - 1
			}
		}
		s.locks[req.Key] = l
	case l.holds[req.ID] == nil && !(d.counts && l.owner == req.Owner):
		if d.fair && req.Wait {
			d.ticket(req.Key)
		}
		return driver.Answer{Remaining: time.Until(l.until()), Owner: l.owner}, nil
	}
	d.none(req.Key)
	if l.holds[req.ID] == nil {
		l.holds[req.ID] = &fakeHold{n: 1}
	}
	l.extend(req.ID, req.TTL)
	token := l.token
	if !req.Fencing {
		token = 0
	}
	return driver.Answer{Granted: true, Token: token, Tokens: tokens}, nil
}

// turn says whether no other Locker has waited for the key for longer. s.mu is
// held.
func (d *fakeDriver) turn(req driver.Request) bool {
	q := d.s.tickets[req.Key]
	return len(q) == 0 || q[0] == d.id
}

// ticket gives the Locker a place in the queue for key; none takes it away. A
// Locker without a Watch has none, as nothing would tell that it has left. s.mu
// is held.
func (d *fakeDriver) ticket(key string) {
	if !slices.Contains(d.s.tickets[key], d.id) && d.s.watched(d, key) {
		d.s.tickets[key] = append(d.s.tickets[key], d.id)
	}
}

func (d *fakeDriver) none(key string) {
	d.s.tickets[key] = slices.DeleteFunc(d.s.tickets[key], func(id string) bool { return id == d.id })
	if len(d.s.tickets[key]) == 0 {
		delete(d.s.tickets, key)
	}
}

func (s *fakeStore) watched(d *fakeDriver, key string) bool {
	for w := range s.watches {
		if w.d == d && w.key == key {
			return true
		}
	}
	return false
}

func (d *fakeDriver) Renew(ctx context.Context, claims []driver.Claim, answer func(int, error)) {
	errs := make([]error, len(claims))
	cerr := d.s.command(ctx, conformance.OpRenew, func() {
		for i, c := range claims {
			if l := d.held(c); l == nil {
				errs[i] = notHeld(c)
			} else {
				errs[i] = nil
				l.extend(c.ID, c.TTL)
			}
		}
	})
	for i, err := range errs {
		answer(i, errors.Join(cerr, err))
	}
}

// held returns the lock that c holds, or nil. s.mu is held.
func (d *fakeDriver) held(c driver.Claim) *fakeLock {
	if l := d.s.live(c.Key); l != nil && l.holds[c.ID] != nil {
		return l
	}
	return nil
}

func notHeld(c driver.Claim) error { return fmt.Errorf("%w: not held by %s", locker.ErrLost, c.ID) }

func (d *fakeDriver) Release(ctx context.Context, c driver.Claim) (err error) {
	cerr := d.s.command(ctx, conformance.OpRelease, func() { err = d.release(c) })
	if cerr != nil {
		return cerr
	}
	return err
}

func (d *fakeDriver) release(c driver.Claim) error {
	l := d.held(c)
	if l == nil {
		return notHeld(c)
	}
	delete(l.holds, c.ID)
	if len(l.holds) == 0 {
		d.s.drop(c.Key)
	}
	return nil
}

// notifying is a driver whose store wakes waiters.
type notifying struct{ fakeDriver }

type fakeWatch struct {
	d   *fakeDriver
	key string
	c   chan struct{}
}

func (w *fakeWatch) C() <-chan struct{} { return w.c }

func (w *fakeWatch) signal() {
	select {
	case w.c <- struct{}{}:
	default:
	}
}

func (w *fakeWatch) Close() {
	s := w.d.s
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.watches, w)
	w.d.none(w.key)
}

func (d *notifying) Watch(ctx context.Context, key string) (driver.Watch, error) {
	w := &fakeWatch{&d.fakeDriver, key, make(chan struct{}, 1)}
	if err := d.s.command(ctx, conformance.OpWatch, func() { d.s.watches[w] = struct{}{} }); err != nil {
		w.Close()
		return nil, err
	}
	return w, nil
}

// counting is a driver whose store counts holds.
type counting struct{ notifying }

func (d *counting) SetHolds(ctx context.Context, c driver.Claim, n int) (err error) {
	cerr := d.s.command(ctx, conformance.OpSetHolds, func() {
		l := d.held(c)
		if l == nil {
			err = notHeld(c)
			return
		}
		err = nil
		l.holds[c.ID].n = n
	})
	if cerr != nil {
		return cerr
	}
	return err
}

package conformance_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/conformance"
	"github.com/distlock/locker/driver"
	"github.com/distlock/locker/internal/locktable"
	"github.com/distlock/locker/internal/uuid"
)

// fakeStore is a store in memory that can do all the suite knows of: hold
// counts, notifications, fairness, and every fault. So the whole suite runs
// without a server, and strategies broken on purpose are made of it.
type fakeStore struct {
	conformance.Injector
	*locktable.Table
	tokens    map[string]int64 // by key
	foreign   map[string]string
	garbage   map[string]time.Duration // other things broken drivers leave
	tickets   map[string][]string      // ids of waiting Lockers, by key
	listeners map[*fakeListener]bool
	losses    map[*fakeLossWatch]bool
	deaf      time.Time // no notifications until then, once they were cut

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

func newFakeStore() *fakeStore {
	s := &fakeStore{
		tokens: map[string]int64{}, foreign: map[string]string{}, garbage: map[string]time.Duration{}, tickets: map[string][]string{},
		listeners: map[*fakeListener]bool{}, losses: map[*fakeLossWatch]bool{},
	}
	s.Table = locktable.New(s.token)
	s.Deaf = func(w *locktable.Watch) bool {
		return time.Now().Before(s.deaf) || w.By.(*fakeDriver).stuck && !s.deaf.IsZero()
	}
	return s
}

// token reserves up to n tokens. The clock keeps them growing after a flush.
func (s *fakeStore) token(key string, n int) (first int64, got int) {
	n = min(n, driver.TokensAhead)
	first = max(s.tokens[key]+1, time.Now().UnixMicro())
	s.tokens[key] = first + int64(n) - 1
	return first, n
}

// command has the store apply a command, unless there are faults.
func (s *fakeStore) command(ctx context.Context, op conformance.Op, apply func()) error {
	time.Sleep(time.Duration(rand.IntN(100)) * time.Microsecond) // the way to a store
	if err := ctx.Err(); err != nil {
		return &driver.StoreError{Err: err, NotApplied: true}
	}
	return s.Command(ctx, op, func(ctx context.Context) error {
		s.Mu.Lock()
		trouble := s.trouble
		if trouble == nil {
			apply()
		}
		s.Mu.Unlock()
		return trouble
	})
}

// fakeDriver is a driver that polls, the base of the others.
type fakeDriver struct {
	s *fakeStore
	// counts: another claim of the same named owner is let in.
	counts bool
	fair   bool
	id     string // of the Locker

	stuck bool // once notifications were cut

	// applied, unless it is nil, is a bug of the store: it is called each time that an Acquire arrives, with s.Mu held.
	applied func(req driver.Request, a driver.Answer)
}

func (d *fakeDriver) Name() string { return "fake" }
func (d *fakeDriver) Close() error { return nil }

func (d *fakeDriver) Configure(c driver.Config) (driver.Settings, error) {
	d.id = uuid.New(4)
	if len(c.Options) > 0 {
		return driver.Settings{}, fmt.Errorf("%w: no such option: %v", locker.ErrInvalid, c.Options[0])
	}
	return driver.Settings{NamesHolders: true}, nil
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
	if d.fair && s.Live(req.Key) == nil && !d.turn(req) {
		return driver.Answer{}, nil
	}
	s.Joins = d.counts
	a := s.Table.Acquire(req)
	switch {
	case a.Granted:
		d.none(req.Key)
	case d.fair && req.Wait:
		d.ticket(req.Key)
	}
	if d.applied != nil {
		d.applied(req, a)
	}
	return a, nil
}

// turn says whether no other Locker has waited for the key for longer. s.Mu is
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
	for w := range s.Watches[key] {
		if w.By == d {
			return true
		}
	}
	return false
}

func (d *fakeDriver) Renew(ctx context.Context, claims []driver.Claim, answer func(int, error)) {
	errs := make([]error, len(claims))
	cerr := d.s.command(ctx, conformance.OpRenew, func() {
		for i, c := range claims {
			errs[i] = d.s.Table.Renew(c)
		}
	})
	for i, err := range errs {
		answer(i, errors.Join(cerr, err))
	}
}

// obey is command, of one that fails by itself.
func (s *fakeStore) obey(ctx context.Context, op conformance.Op, apply func() error) (err error) {
	if cerr := s.command(ctx, op, func() { err = apply() }); cerr != nil {
		return cerr
	}
	return err
}

func (d *fakeDriver) Release(ctx context.Context, c driver.Claim) error {
	return d.s.obey(ctx, conformance.OpRelease, func() error { return d.s.Table.Release(c) })
}

func (d *fakeDriver) look(ctx context.Context, key string) (id string, err error) {
	err = d.s.command(ctx, opLook, func() {
		if l := d.s.Live(key); l != nil {
			id = l.Claims[0].ID
		}
	})
	return id, err
}

func (d *fakeDriver) put(ctx context.Context, c driver.Claim) error {
	return d.s.command(ctx, opPut, func() { d.s.Put(c.Key, c.Owner, c.ID, c.Token, c.TTL) })
}

func (d *fakeDriver) drop(ctx context.Context, key string) error {
	return d.s.command(ctx, opDrop, func() { d.s.Drop(key) })
}

// notifying is a driver whose store wakes waiters.
type notifying struct{ fakeDriver }

// fakeWatch keeps a place in the queue.
type fakeWatch struct {
	*locktable.Watch
	d *fakeDriver
}

func (w fakeWatch) Close() {
	w.d.s.Mu.Lock()
	defer w.d.s.Mu.Unlock()
	w.Forget()
	w.d.none(w.Key)
}

func (d *notifying) Watch(ctx context.Context, key string) (driver.Watch, error) {
	w := fakeWatch{d: &d.fakeDriver}
	err := d.s.command(ctx, conformance.OpWatch, func() {
		if w.Watch == nil { // it may arrive twice
			w.Watch = d.s.Table.Watch(key, w.d)
		}
	})
	switch {
	case err == nil:
		return w, nil
	case w.Watch != nil:
		w.Close()
	}
	return nil, err
}

// counting is a driver whose store counts holds.
type counting struct{ notifying }

func (d *counting) SetHolds(ctx context.Context, c driver.Claim, n int) error {
	return d.s.obey(ctx, conformance.OpSetHolds, func() error { return d.s.Table.SetHolds(c, n) })
}

package simulation

import (
	"context"
	"sync"
	"time"

	"github.com/distlock/locker/conformance"
	"github.com/distlock/locker/driver"
	"github.com/distlock/locker/internal/locktable"
	"github.com/distlock/locker/strategy/memory"
)

// store is where the locks of a history are: the store of strategy/memory, or one that
// counts holds.
type store struct {
	driver.Driver
	driver.Inspector
	memory *memory.Store
	table  *locktable.Table // nil: it is memory
}

func newStore(counts bool) *store {
	if counts {
		last := int64(0)
		t := locktable.New(func(_ string, n int) (first int64, got int) {
			first = max(last+1, time.Now().UnixMicro())
			last = first + int64(n) - 1
			return first, n
		})
		t.Joins = true
		d := counting{t: t}
		return &store{Driver: d, Inspector: d, table: t}
	}
	m := memory.NewStore()
	d := m.Driver()
	return &store{Driver: d, Inspector: d.(driver.Inspector), memory: m}
}

// lose loses the lock at key.
func (s *store) lose(key string) {
	if s.memory != nil {
		s.memory.Break(key)
		return
	}
	s.table.Mu.Lock()
	defer s.table.Mu.Unlock()
	delete(s.table.Locks, key)
}

func (s *store) at(key string) driver.Holder {
	h, err := s.Inspect(context.Background(), key)
	if err != nil {
		panic(err) // nothing is between it and the caller
	}
	return h
}

// counting is a driver whose store counts holds.
type counting struct {
	driver.Inspector // for what is not used here
	t                *locktable.Table
}

func (counting) Name() string { return "counting" }
func (counting) Close() error { return nil }

func (d counting) do(f func() error) error {
	d.t.Mu.Lock()
	defer d.t.Mu.Unlock()
	return f()
}

func (d counting) Acquire(_ context.Context, req driver.Request) (a driver.Answer, err error) {
	return a, d.do(func() error { a = d.t.Acquire(req); return nil })
}

func (d counting) Renew(_ context.Context, claims []driver.Claim, answer func(int, error)) {
	for i, c := range claims {
		answer(i, d.do(func() error { return d.t.Renew(c) }))
	}
}

func (d counting) Release(_ context.Context, c driver.Claim) error {
	return d.do(func() error { return d.t.Release(c) })
}

func (d counting) SetHolds(_ context.Context, c driver.Claim, n int) error {
	return d.do(func() error { return d.t.SetHolds(c, n) })
}

func (d counting) Watch(_ context.Context, key string) (w driver.Watch, err error) {
	return w, d.do(func() error { w = d.t.Watch(key, nil); return nil })
}

func (d counting) Inspect(_ context.Context, key string) (h driver.Holder, err error) {
	return h, d.do(func() error { h = d.t.Inspect(key); h.Strategy = d.Name(); return nil })
}

func (d counting) Break(_ context.Context, h driver.Holder) error {
	return d.do(func() error { return d.t.Break(h) })
}

// link is the way of one Locker to the store: each command and its answer take their time, and
// a command whose context has ended may arrive all the same, up to straggle after it was sent.
type link struct {
	w       *world
	locker  int
	mu      sync.Mutex
	r       chance
	pending map[string]<-chan struct{} // by claim: the command that was sent last
}

// straggle is the longest that a command is under way. The Locker repeats a release that found
// nothing after a second: what comes later than that stays until its TTL.
const straggle = 900 * time.Millisecond

// send takes a command to the store. Commands of one claim that take turns arrive in their order.
func (k *link) send(ctx context.Context, turns string, apply func()) error {
	if err := ctx.Err(); err != nil {
		return &driver.StoreError{Err: err, NotApplied: true}
	}
	k.mu.Lock()
	there, back := k.r.latency(k.w), k.r.latency(k.w)
	if !k.w.calm && !k.w.ending.Load() && k.r.oneIn(40) {
		there = k.r.upTo(straggle)
	}
	if k.w.calm && there+back == 0 && k.pending[turns] == nil {
		k.mu.Unlock()
		apply()
		return nil
	}
	before, arrived, done := k.pending[turns], make(chan struct{}), make(chan struct{})
	if turns != "" {
		k.pending[turns] = arrived
	}
	k.mu.Unlock()
	go func() {
		time.Sleep(there)
		if before != nil {
			<-before
		}
		apply()
		close(arrived)
		time.Sleep(back)
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// remote is a driver whose store is behind a link, without any optional interface.
type remote struct {
	inner driver.Driver
	k     *link
}

func (d remote) Name() string { return d.inner.Name() }
func (d remote) Close() error { return d.inner.Close() }

// result holds what a command returned: it is written where the command is applied, which may be
// after its caller has left.
type result[T any] struct {
	mu  sync.Mutex
	v   T
	err error
}

func (r *result[T]) set(v T, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.v, r.err = v, err
}

func (r *result[T]) get() (T, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.v, r.err
}

func over[T any](ctx context.Context, k *link, turns string, f func(context.Context) (T, error)) (v T, err error) {
	var r result[T]
	if err := k.send(ctx, turns, func() { r.set(f(context.WithoutCancel(ctx))) }); err != nil {
		return v, err
	}
	return r.get()
}

func (d remote) Acquire(ctx context.Context, req driver.Request) (driver.Answer, error) {
	d.k.w.audit.acquire(req.Claim)
	return over(ctx, d.k, "", func(ctx context.Context) (driver.Answer, error) {
		a, err := d.inner.Acquire(ctx, req)
		if a.Granted {
			d.k.w.grants.Add(1)
		}
		return a, err
	})
}

func (d remote) Renew(ctx context.Context, claims []driver.Claim, answer func(int, error)) {
	for _, c := range claims {
		d.k.w.audit.renew(d.k.locker, c)
	}
	errs, err := over(ctx, d.k, "", func(ctx context.Context) ([]error, error) {
		errs := make([]error, len(claims))
		d.inner.Renew(ctx, claims, func(i int, err error) { errs[i] = err })
		return errs, nil
	})
	for i := range claims {
		if err == nil {
			d.k.w.audit.renewed(claims[i], errs[i])
			answer(i, errs[i])
		} else {
			answer(i, err)
		}
	}
}

func (d remote) Release(ctx context.Context, c driver.Claim) error {
	d.k.w.audit.release(c)
	_, err := over(ctx, d.k, c.ID, func(ctx context.Context) (struct{}, error) { return struct{}{}, d.inner.Release(ctx, c) })
	return err
}

type remoteCounter struct{ remote }

func (d remoteCounter) SetHolds(ctx context.Context, c driver.Claim, n int) error {
	_, err := over(ctx, d.k, c.ID, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, d.inner.(driver.HoldCounter).SetHolds(ctx, c, n)
	})
	return err
}

// watch is Watch. One that is opened after its caller has left is closed.
func (d remote) watch(ctx context.Context, key string) (driver.Watch, error) {
	d.k.mayPanic()
	var mu sync.Mutex // not held while a fault lasts: time stands still while a mutex is waited for
	var w driver.Watch
	var werr error
	left := false
	err := d.k.send(ctx, "", func() {
		opened, err := d.inner.(driver.Notifier).Watch(context.WithoutCancel(ctx), key)
		mu.Lock()
		defer mu.Unlock()
		if w, werr = opened, err; left && err == nil {
			w.Close()
		}
	})
	mu.Lock()
	defer mu.Unlock()
	if err == nil {
		return w, werr
	}
	if left = true; w != nil {
		w.Close()
	}
	return nil, err
}

// administrator adds what all stores can do besides.
type administrator struct{ driver.Inspector }

// remoteNotifier is a driver with everything that the one in memory has.
type remoteNotifier struct {
	remote
	administrator
	driver.Configurer
	driver.PermitKeeper
	driver.Signaller
}

// Signal sends a signal once; where not all is well, sometimes twice or never.
func (d remoteNotifier) Signal(ctx context.Context, s driver.Signal) error {
	for range d.k.copies() {
		_, err := over(ctx, d.k, "", func(ctx context.Context) (struct{}, error) { return struct{}{}, d.Signaller.Signal(ctx, s) })
		if err != nil {
			return err
		}
	}
	return nil
}

// copies is how often a signal arrives.
func (k *link) copies() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.w.calm || k.w.ending.Load() {
		return 1
	}
	return pick(k.r, 0, 1, 1, 1, 1, 1, 1, 2)
}

func (d remoteNotifier) Watch(ctx context.Context, key string) (driver.Watch, error) {
	return d.watch(ctx, key)
}

type countingNotifier struct {
	remoteCounter
	administrator
}

func (d countingNotifier) Watch(ctx context.Context, key string) (driver.Watch, error) {
	return d.watch(ctx, key)
}

// polling is a driver without wake-ups.
type polling struct {
	remote
	administrator
}

// open returns the driver of one Locker: the link is before the faults, so that a caller leaves
// when its context ends, whatever becomes of its command.
func (s *store) open(v variant, k *link, in *conformance.Injector) driver.Driver {
	inner := in.Wrap(s.Driver)
	r, admin := remote{inner, k}, administrator{inner.(driver.Inspector)}
	switch v {
	case notified:
		return remoteNotifier{r, admin, inner.(driver.Configurer), inner.(driver.PermitKeeper), inner.(driver.Signaller)}
	case countingHolds:
		return countingNotifier{remoteCounter{r}, admin}
	}
	return polling{r, admin}
}

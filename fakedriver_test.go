package locker

import (
	"context"
	"strings"
	"time"

	"github.com/distlock/locker/driver"
	"github.com/distlock/locker/internal/bound"
	"github.com/distlock/locker/internal/locktable"
)

// fake is a driver and its store, in memory. What becomes of each command can be
// scripted; unscripted ones are obeyed at once. It notes all that it is sent.
type fake struct {
	start  time.Time
	t      *locktable.Table // its Mu is for all of this
	token  int64
	mute   bool   // releases are not signalled
	blocks bool   // tokens are reserved
	called func() // when a method of the driver, or of its watches, begins; nil: nothing

	script  map[op][]step // for the next commands, one each
	rest    map[op]step   // for those after them
	log     []*command
	running map[op]int
	most    map[op]int // that ran at the same time
	closes  int
	renews  int           // calls of Renew
	closing time.Duration // how long Close takes
}

func newFake() *fake {
	f := &fake{
		start:   time.Now(),
		script:  make(map[op][]step),
		rest:    make(map[op]step),
		running: make(map[op]int),
		most:    make(map[op]int),
	}
	f.t = locktable.New(f.tokens)
	f.t.Deaf = func(*locktable.Watch) bool { return f.mute }
	return f
}

// tokens returns the first of n tokens.
func (f *fake) tokens(_ string, n int) (first int64, got int) {
	first = f.token + 1
	f.token += int64(n)
	return first, n
}

// locked runs do with the store's mutex held.
func (f *fake) locked(do func()) {
	f.t.Mu.Lock()
	defer f.t.Mu.Unlock()
	do()
}

// held returns the owner who holds key, or "".
func (f *fake) held(key string) (owner string) {
	f.locked(func() { owner = f.t.Inspect(key).Owner })
	return owner
}

// seize gives key to a program that is no Locker, whoever holds it.
func (f *fake) seize(key, owner string, d time.Duration) {
	f.locked(func() {
		token, _ := f.tokens(key, 1)
		f.t.Put(key, owner, owner, token, d)
	})
}

// free drops key, whoever holds it, and signals it unless muted.
func (f *fake) free(key string) { f.locked(func() { f.t.Drop(key) }) }

// Name implements [Driver].
func (f *fake) Name() string { return "fake" }

func (f *fake) look() {
	if f.called != nil {
		f.called()
	}
}

// Acquire implements [Driver].
func (f *fake) Acquire(ctx context.Context, req driver.Request) (driver.Answer, error) {
	c := &command{op: opAcquire, Request: req}
	if !f.blocks {
		req.Tokens = 0
	}
	err := f.do(ctx, c, func() error {
		c.answer = f.t.Acquire(req)
		return nil
	})
	if err != nil {
		return driver.Answer{}, err
	}
	f.t.Mu.Lock()
	defer f.t.Mu.Unlock()
	return c.answer, nil
}

// Renew implements [Driver]: one claim after the other.
func (f *fake) Renew(ctx context.Context, claims []driver.Claim, answer func(int, error)) {
	f.t.Mu.Lock()
	f.renews++
	call := f.renews
	f.t.Mu.Unlock()
	for i, cl := range claims {
		c := &command{op: opRenew, Request: driver.Request{Claim: cl}, call: call}
		answer(i, f.do(ctx, c, func() error { return f.t.Renew(cl) }))
	}
}

// Release implements [Driver].
func (f *fake) Release(ctx context.Context, cl driver.Claim) error {
	return f.do(ctx, &command{op: opRelease, Request: driver.Request{Claim: cl}}, func() error { return f.t.Release(cl) })
}

// Close implements [Driver].
func (f *fake) Close() error {
	f.look()
	bound.Sleep(context.Background(), nil, f.closing)
	f.t.Mu.Lock()
	defer f.t.Mu.Unlock()
	f.closes++
	return nil
}

// The optional interfaces of a driver.
type (
	fakeCounter  struct{ f *fake }
	fakeNotifier struct{ f *fake }
	fakeSharder  struct{ f *fake }
	fakeKeeper   struct{ f *fake }
)

// SetHolds implements [HoldCounter].
func (h fakeCounter) SetHolds(ctx context.Context, cl driver.Claim, n int) error {
	c := &command{op: opSetHolds, Request: driver.Request{Claim: cl}, holds: n}
	return h.f.do(ctx, c, func() error { return h.f.t.SetHolds(cl, n) })
}

// Shard implements [Sharder].
func (s fakeSharder) Shard(key string) string {
	s.f.look()
	return shardOf(key)
}

// Permits implements [PermitKeeper].
func (k fakeKeeper) Permits(ctx context.Context, key string) (out, limit int, err error) {
	err = k.f.do(ctx, &command{op: opPermits, Request: driver.Request{Claim: driver.Claim{Key: key}}}, func() (err error) {
		out, limit, err = k.f.t.Permits(key)
		return err
	})
	return out, limit, err
}

// shardOf returns what stands before the slash.
func shardOf(key string) string {
	shard, _, _ := strings.Cut(key, "/")
	return shard
}

// Watch implements [Notifier].
func (n fakeNotifier) Watch(ctx context.Context, key string) (driver.Watch, error) {
	var w *locktable.Watch
	err := n.f.do(ctx, &command{op: opWatch, Request: driver.Request{Claim: driver.Claim{Key: key}}}, func() error {
		w = n.f.t.Watch(key, nil)
		return nil
	})
	if err == nil {
		return fakeWatch{w, n.f}, nil
	}
	if w != nil { // its reply was lost
		w.Close()
	}
	return nil, err
}

type fakeWatch struct {
	*locktable.Watch
	f *fake
}

func (w fakeWatch) C() <-chan struct{} {
	w.f.look()
	return w.Watch.C()
}

func (w fakeWatch) Close() {
	w.f.look()
	w.Watch.Close()
}

// signal makes the watches of key signal.
func (f *fake) signal(key string) { f.locked(func() { f.t.Signal(key) }) }

// endWatches ends all watches as a server that goes away does.
func (f *fake) endWatches() { f.locked(f.t.End) }

// watching is how many watches are open.
func (f *fake) watching() (n int) {
	f.locked(func() {
		for _, ws := range f.t.Watches {
			n += len(ws)
		}
	})
	return n
}

// kind is what a driver can do.
type kind int

const (
	plain kind = iota
	counting
	notifying
	sharding
	permitting         // and notifying
	permittingCounting // and counting
)

// as is f as a driver of kind k.
func (f *fake) as(k kind) driver.Driver {
	f.t.Joins = k == counting || k == permittingCounting
	switch k {
	case counting:
		return struct {
			*fake
			fakeCounter
		}{f, fakeCounter{f}}
	case notifying:
		return struct {
			*fake
			fakeNotifier
		}{f, fakeNotifier{f}}
	case permitting:
		return struct {
			*fake
			fakeNotifier
			fakeKeeper
		}{f, fakeNotifier{f}, fakeKeeper{f}}
	case permittingCounting:
		return struct {
			*fake
			fakeCounter
			fakeKeeper
		}{f, fakeCounter{f}, fakeKeeper{f}}
	case sharding:
		return struct {
			*fake
			fakeSharder
		}{f, fakeSharder{f}}
	}
	return f
}

package locker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/distlock/locker/driver"
)

// ether carries the signals of fakes.
type ether struct {
	mu        sync.Mutex
	refuses   error         // Listen fails with it
	late      time.Duration // Listen takes so long
	mute      bool          // signals are lost
	listeners []*fakeListener
	opened    []time.Time
}

type fakeListener struct {
	ether  *ether
	locker string
	c      chan driver.Signal
	closed bool
}

func (l *fakeListener) C() <-chan driver.Signal { return l.c }

func (l *fakeListener) Close() {
	l.ether.mu.Lock()
	defer l.ether.mu.Unlock()
	l.closed = true
	l.ether.listeners = slices.DeleteFunc(l.ether.listeners, func(o *fakeListener) bool { return o == l })
}

// signalling is a driver with signals.
type signalling struct {
	breaking
	*ether
}

func (d signalling) Configure(driver.Config) (driver.Settings, error) {
	return driver.Settings{NamesHolders: true}, nil
}

func (d signalling) Listen(ctx context.Context, locker string) (driver.Listener, error) {
	d.ether.mu.Lock()
	d.opened = append(d.opened, time.Now())
	late, refuses := d.ether.late, d.refuses
	d.ether.mu.Unlock()
	select {
	case <-time.After(late):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if refuses != nil {
		return nil, refuses
	}
	d.ether.mu.Lock()
	defer d.ether.mu.Unlock()
	l := &fakeListener{ether: d.ether, locker: locker, c: make(chan driver.Signal, 4)}
	d.listeners = append(d.listeners, l)
	return l, nil
}

func (d signalling) Signal(_ context.Context, s driver.Signal) error {
	locker, ok := driver.LockerOf(s.Claim)
	if !ok {
		return fmt.Errorf("%w: %q", driver.ErrInvalid, s.Claim)
	}
	d.ether.mu.Lock()
	defer d.ether.mu.Unlock()
	for _, l := range d.listeners {
		if l.locker == locker && !d.mute {
			l.c <- s
		}
	}
	return nil
}

func (e *ether) listening() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.listeners)
}

func (e *ether) opens() []time.Time {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.opened)
}

// cut ends all listeners, as a connection does that breaks.
func (e *ether) cut() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, l := range e.listeners {
		close(l.c)
	}
	e.listeners = nil
}

// signalled are a holder and another Locker, on one store with signals.
type signalled struct {
	*bench
	*ether
	other *Client
	d     signalling
}

func newSignalled(t *testing.T, opts ...Option) *signalled {
	t.Helper()
	b := newBench(t, plain)
	s := &signalled{bench: b, ether: new(ether)}
	s.d = signalling{breaking{fake: b.store, fakeNotifier: fakeNotifier{b.store}}, s.ether}
	note := ObserverFunc(func(_ context.Context, e Event) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.seen = append(b.seen, e)
	})
	var err error
	if b.Client, err = New(s.d, slices.Insert(opts, 0, Option(WithObserver(note)))...); err != nil {
		t.Fatal(err)
	}
	if s.other, err = New(s.d); err != nil {
		t.Fatal(err)
	}
	holder, other := b.Client, s.other
	t.Cleanup(func() { _, _ = holder.Close(), other.Close() })
	return s
}

func (s *signalled) request(key string) {
	s.t.Helper()
	if err := s.other.RequestRelease(s.t.Context(), key); err != nil {
		s.t.Fatalf("RequestRelease: %v, want nil", err)
	}
	synctest.Wait()
}

func (s *signalled) inspect(key string) Holder {
	s.t.Helper()
	h, err := s.other.Inspect(s.t.Context(), key)
	if err != nil {
		s.t.Fatal(err)
	}
	return h
}

// shows makes a fake store report losses.
type shows struct {
	mu      sync.Mutex
	opening func() error // what DetectLoss does; nil: nothing
	telling func() error // what Watch does; nil: nothing
	looking error        // of Inspect
	opened  []time.Duration
	watches []*fakeLossWatch // those that are open
}

// showing is a driver whose store shows losses.
type showing struct {
	signalling
	shows *shows
	fake  *fake
}

// fakeLossWatch keeps in calls what it was told, one element for a call.
type fakeLossWatch struct {
	shows   *shows
	changed func(driver.Signal)
	done    chan struct{}
	claims  map[string]driver.Claim
	calls   []told
}

// told are the keys of a call of Watch, sorted.
type told struct{ more, less []string }

func (d showing) Inspect(ctx context.Context, key string) (driver.Holder, error) {
	if d.shows.looking != nil {
		return driver.Holder{}, d.shows.looking
	}
	return d.signalling.Inspect(ctx, key)
}

func (d showing) DetectLoss(_ context.Context, changed func(driver.Signal)) (driver.LossWatch, error) {
	d.shows.mu.Lock()
	d.shows.opened = append(d.shows.opened, time.Since(d.fake.start))
	opening := d.shows.opening
	d.shows.mu.Unlock()
	if opening != nil {
		if err := opening(); err != nil {
			return nil, err
		}
	}
	w := &fakeLossWatch{shows: d.shows, changed: changed, done: make(chan struct{}), claims: make(map[string]driver.Claim)}
	d.shows.mu.Lock()
	defer d.shows.mu.Unlock()
	d.shows.watches = append(d.shows.watches, w)
	return w, nil
}

func (w *fakeLossWatch) Watch(ctx context.Context, more, less []driver.Claim) error {
	w.shows.mu.Lock()
	defer w.shows.mu.Unlock()
	if w.shows.telling != nil {
		if err := w.shows.telling(); err != nil {
			return err
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	var call told
	for _, c := range less {
		call.less = append(call.less, c.Key)
		if w.claims[c.Key].ID == c.ID {
			delete(w.claims, c.Key)
		}
	}
	for _, c := range more {
		call.more = append(call.more, c.Key)
		w.claims[c.Key] = c
	}
	slices.Sort(call.more)
	slices.Sort(call.less)
	w.calls = append(w.calls, call)
	return nil
}

func (w *fakeLossWatch) Done() <-chan struct{} { return w.done }

func (w *fakeLossWatch) Close() {
	w.shows.mu.Lock()
	defer w.shows.mu.Unlock()
	w.shows.watches = slices.DeleteFunc(w.shows.watches, func(o *fakeLossWatch) bool { return o == w })
}

// open returns the one that is open, or nil.
func (s *shows) open(t *testing.T) *fakeLossWatch {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	switch len(s.watches) {
	case 0:
		return nil
	case 1:
		return s.watches[0]
	}
	t.Fatalf("%d LossWatches are open, want one at most", len(s.watches))
	return nil
}

// trouble sets what DetectLoss and Watch do from now on.
func (s *shows) trouble(opening, telling func() error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.opening, s.telling = opening, telling
}

// detecting is a holder that detects losses.
type detecting struct {
	*signalled
	shows *shows
}

func newDetecting(t *testing.T, opts ...Option) *detecting {
	t.Helper()
	s := newSignalled(t)
	d := &detecting{s, new(shows)}
	note := ObserverFunc(func(_ context.Context, e Event) {
		s.bench.mu.Lock()
		defer s.bench.mu.Unlock()
		s.seen = append(s.seen, e)
	})
	l, err := New(showing{s.d, d.shows, s.store}, slices.Insert(opts, 0, Option(WithObserver(note)), Option(WithLossDetection()))...)
	if err != nil {
		t.Fatal(err)
	}
	s.Client = l
	t.Cleanup(func() { _ = l.Close() })
	return d
}

// wantWatched wants those keys to be watched, and no others.
func (d *detecting) wantWatched(why string, keys ...string) {
	d.t.Helper()
	var have []string
	if w := d.shows.open(d.t); w != nil {
		d.shows.mu.Lock()
		for key := range w.claims {
			have = append(have, key)
		}
		d.shows.mu.Unlock()
	}
	slices.Sort(have)
	if !slices.Equal(have, keys) {
		d.t.Errorf("%v are watched at %v, want %v: %s", have, d.at(), keys, why)
	}
}

// drop deletes key in the store, which shows it if it is watched.
func (d *detecting) drop(key string) {
	d.t.Helper()
	d.store.free(key)
	d.show(key)
}

// show shows that key has changed, if it is watched.
func (d *detecting) show(key string) {
	d.t.Helper()
	w := d.shows.open(d.t)
	if w == nil {
		return
	}
	d.shows.mu.Lock()
	c, watched := w.claims[key]
	d.shows.mu.Unlock()
	if watched {
		w.changed(driver.Signal{Kind: driver.SignalBroken, Key: key, Claim: c.ID})
	}
}

// failing fails with err.
func failing(err error) func() error { return func() error { return err } }

// panicking panics.
func panicking() error { panic(errors.New("a bug of the driver")) }

package locker

import (
	"context"
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

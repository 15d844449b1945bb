package conformance_test

import (
	"context"
	"fmt"
	"time"

	"github.com/distlock/locker/driver"
)

// opSignal is the store's name for a signal, and for listening.
const opSignal = "signal"

// fakeListener hears signals.
type fakeListener struct {
	s      *fakeStore
	locker string
	c      chan driver.Signal
}

func (l *fakeListener) C() <-chan driver.Signal { return l.c }

func (l *fakeListener) Close() {
	l.s.Mu.Lock()
	defer l.s.Mu.Unlock()
	delete(l.s.listeners, l)
}

func (d *fakeDriver) Listen(ctx context.Context, locker string) (driver.Listener, error) {
	l := &fakeListener{d.s, locker, make(chan driver.Signal, driver.SignalBuffer)}
	if err := d.s.command(ctx, opSignal, func() { d.s.listeners[l] = true }); err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

func (d *fakeDriver) Signal(ctx context.Context, s driver.Signal) error {
	locker, ok := driver.LockerOf(s.Claim)
	if !ok {
		return fmt.Errorf("%w: %q is no claim", driver.ErrInvalid, s.Claim)
	}
	return d.s.command(ctx, opSignal, func() {
		for l := range d.s.listeners {
			if l.locker == locker && !time.Now().Before(d.s.deaf) {
				select {
				case l.c <- s:
				default:
				}
			}
		}
	})
}

// fakeLossWatch watches claims, by their keys.
type fakeLossWatch struct {
	s       *fakeStore
	changed func(driver.Signal)
	done    chan struct{}
	claims  map[string]driver.Claim
}

func (d *fakeDriver) DetectLoss(ctx context.Context, changed func(driver.Signal)) (driver.LossWatch, error) {
	w := &fakeLossWatch{d.s, changed, make(chan struct{}), map[string]driver.Claim{}}
	return w, d.s.command(ctx, opSignal, func() { d.s.losses[w] = true })
}

func (w *fakeLossWatch) Watch(ctx context.Context, more, less []driver.Claim) error {
	return w.s.command(ctx, opSignal, func() {
		for _, c := range less {
			delete(w.claims, c.Key)
		}
		for _, c := range more {
			w.claims[c.Key] = c
		}
	})
}

func (w *fakeLossWatch) Done() <-chan struct{} { return w.done }

func (w *fakeLossWatch) Close() {
	w.s.Mu.Lock()
	defer w.s.Mu.Unlock()
	delete(w.s.losses, w)
}

// changed shows that a key was changed from outside.
func (s *fakeStore) changed(key string) {
	s.Mu.Lock()
	var told []func()
	for w := range s.losses {
		if c, ok := w.claims[key]; ok {
			told = append(told, func() { w.changed(driver.Signal{Kind: driver.SignalBroken, Key: key, Claim: c.ID}) })
		}
	}
	s.Mu.Unlock()
	for _, tell := range told {
		tell()
	}
}

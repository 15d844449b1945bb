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

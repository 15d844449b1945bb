package conformance

import (
	"context"
	"errors"
	"sync"

	"github.com/distlock/locker/driver"
)

// opSignal is for the commands of a [driver.Signaller]: they suffer from outages only.
const opSignal Op = "signal"

func (d injected) Signal(ctx context.Context, s driver.Signal) error {
	signaller, ok := d.inner.(driver.Signaller)
	if !ok {
		return errors.ErrUnsupported
	}
	return d.in.Command(ctx, opSignal, func(ctx context.Context) error { return signaller.Signal(ctx, s) })
}

func (d injected) Listen(ctx context.Context, locker string) (driver.Listener, error) {
	signaller, ok := d.inner.(driver.Signaller)
	if !ok {
		return nil, errors.ErrUnsupported
	}
	l := &injectedListener{in: d.in, c: make(chan driver.Signal, driver.SignalBuffer), over: make(chan struct{})}
	err := d.in.Command(ctx, opSignal, func(ctx context.Context) (err error) {
		l.inner, err = signaller.Listen(ctx, locker)
		return err
	})
	if err != nil {
		if l.inner != nil {
			l.inner.Close()
		}
		return nil, err
	}
	d.in.mu.Lock()
	defer d.in.mu.Unlock()
	if d.in.listens == nil {
		d.in.listens = make(map[*injectedListener]struct{})
	}
	d.in.listens[l] = struct{}{}
	go l.pass()
	return l, nil
}

// injectedListener passes on what another one hears, until it is cut off.
type injectedListener struct {
	in    *Injector
	inner driver.Listener
	c     chan driver.Signal
	once  sync.Once
	over  chan struct{} // closed by Close, or when it is cut off
}

func (l *injectedListener) C() <-chan driver.Signal { return l.c }

func (l *injectedListener) end() { l.once.Do(func() { close(l.over) }) }

func (l *injectedListener) Close() {
	l.end()
	l.in.mu.Lock()
	delete(l.in.listens, l)
	l.in.mu.Unlock()
	l.inner.Close()
}

// DetectLoss passes on what the driver sees. A driver that detects no losses is asked once.
func (d injected) DetectLoss(ctx context.Context, changed func(driver.Signal)) (w driver.LossWatch, err error) {
	detector, ok := d.inner.(driver.LossDetector)
	if !ok {
		return nil, errors.ErrUnsupported
	}
	err = d.in.Command(ctx, opSignal, func(ctx context.Context) (err error) {
		if w != nil {
			w.Close() // a command that arrives twice
		}
		w, err = detector.DetectLoss(ctx, changed)
		return err
	})
	if err != nil && w != nil {
		w.Close()
		w = nil
	}
	return w, err
}

func (l *injectedListener) pass() {
	defer close(l.c)
	for {
		select {
		case s, ok := <-l.inner.C():
			if !ok {
				return
			}
			select {
			case l.c <- s:
			default:
			}
		case <-l.over:
			return
		}
	}
}

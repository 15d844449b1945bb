package conformance

import (
	"context"
	"sync"

	"github.com/distlock/locker/driver"
)

type injectedNotifier struct {
	inner driver.Notifier
	in    *Injector
}

func (d injectedNotifier) Watch(ctx context.Context, key string) (driver.Watch, error) {
	w := &injectedWatch{in: d.in, c: make(chan struct{}, 1), over: make(chan struct{})}
	err := d.in.Command(ctx, OpWatch, func(ctx context.Context) (err error) {
		if w.inner != nil {
			w.inner.Close() // a command that arrives twice
		}
		w.inner, err = d.inner.Watch(ctx, key)
		return err
	})
	if err != nil {
		if w.inner != nil {
			w.inner.Close()
		}
		return nil, err
	}
	d.in.add(w)
	go w.pass()
	return w, nil
}

func (in *Injector) add(w *injectedWatch) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.watches == nil {
		in.watches = make(map[*injectedWatch]struct{})
	}
	in.watches[w] = struct{}{}
}

// injectedWatch passes on what another one signals, until it is cut off.
type injectedWatch struct {
	in    *Injector
	inner driver.Watch
	c     chan struct{}
	once  sync.Once
	over  chan struct{} // closed by Close, or when it is cut off
}

func (w *injectedWatch) C() <-chan struct{} { return w.c }

func (w *injectedWatch) end() { w.once.Do(func() { close(w.over) }) }

func (w *injectedWatch) Close() {
	w.end()
	w.in.mu.Lock()
	delete(w.in.watches, w)
	w.in.mu.Unlock()
	w.inner.Close()
}

func (w *injectedWatch) pass() {
	defer close(w.c)
	for {
		select {
		case _, ok := <-w.inner.C():
			if !ok {
				return
			}
			select {
			case w.c <- struct{}{}:
			default:
			}
		case <-w.over:
			return
		}
	}
}

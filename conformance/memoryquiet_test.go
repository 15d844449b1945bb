package conformance_test

import (
	"context"
	"sync"

	"github.com/distlock/locker/driver"
	"github.com/distlock/locker/strategy/memory"
)

// quietStore is a memory.Store whose locks can be taken away without a signal to
// those who wait for them, as a Breaker has to: [memory.Store.Break] signals. The
// Watches of its drivers leave these signals out.
type quietStore struct {
	*memory.Store

	mu      sync.Mutex
	watches map[*quietWatch]struct{}
}

func newQuietStore() *quietStore {
	return &quietStore{Store: memory.NewStore(), watches: make(map[*quietWatch]struct{})}
}

// breakQuietly takes the locks at keys away.
func (s *quietStore) breakQuietly(keys ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, key := range keys {
		for w := range s.watches {
			w.skip = w.skip || w.key == key
		}
		s.Break(key)
	}
}

func (s *quietStore) driver() driver.Driver {
	return quietDriver{s.Driver().(watchedDriver), s}
}

type watchedDriver interface {
	driver.Driver
	driver.Notifier
}

type quietDriver struct {
	watchedDriver
	s *quietStore
}

func (d quietDriver) Watch(ctx context.Context, key string) (driver.Watch, error) {
	inner, err := d.watchedDriver.Watch(ctx, key)
	if err != nil {
		return nil, err
	}
	w := &quietWatch{s: d.s, inner: inner, key: key, c: make(chan struct{}, 1), end: make(chan struct{})}
	d.s.mu.Lock()
	defer d.s.mu.Unlock()
	d.s.watches[w] = struct{}{}
	go w.forward()
	return w, nil
}

type quietWatch struct {
	s     *quietStore
	inner driver.Watch
	key   string
	c     chan struct{}
	end   chan struct{}
	skip  bool // the next signal; guarded by s.mu
}

func (w *quietWatch) C() <-chan struct{} { return w.c }

func (w *quietWatch) Close() {
	close(w.end)
	w.inner.Close()
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	delete(w.s.watches, w)
}

func (w *quietWatch) forward() {
	for {
		select {
		case <-w.end:
			return
		case <-w.inner.C():
		}
		w.s.mu.Lock()
		if !w.skip {
			select {
			case w.c <- struct{}{}:
			default:
			}
		}
		w.skip = false
		w.s.mu.Unlock()
	}
}

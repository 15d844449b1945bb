package redlock

import (
	"context"
	"errors"
	"io"
	"sync"

	"github.com/distlock/locker"
)

// watch implements [locker.Watch] by the nodes' release notices: it signals when a
// majority has given notice, so that the attempt that follows finds one free.
type watch struct {
	d     *driver
	c     chan struct{}
	mu    sync.Mutex
	told  map[int]bool // nodes that gave notice since the last signal
	ended int
	subs  []io.Closer
}

func (w *watch) C() <-chan struct{} { return w.c }

// Watch implements [locker.Notifier].
func (d *driver) Watch(ctx context.Context, key string) (locker.Watch, error) {
	w := &watch{d: d, c: make(chan struct{}, 1), told: make(map[int]bool)}
	type result struct {
		sub io.Closer
		err error
	}
	results := make(chan result, len(d.nodes))
	for i, n := range d.nodes {
		go func() {
			if err := n.usable(); err != nil {
				results <- result{err: err}
				return
			}
			sub, err := n.signals.Listen(ctx, key, func() { w.notice(i) }, w.end)
			results <- result{sub, err}
		}()
	}
	var errs []error
	confirmed := 0
	for confirmed < d.quorum && len(errs) <= len(d.nodes)-d.quorum {
		r := <-results
		if r.err != nil {
			errs = append(errs, r.err)
			continue
		}
		confirmed++
		w.add(r.sub)
	}
	rest := len(d.nodes) - confirmed - len(errs)
	go func() { // they come when they come, at the end of ctx at the latest
		for range rest {
			if r := <-results; r.sub != nil {
				w.add(r.sub)
			}
		}
	}()
	if confirmed < d.quorum {
		w.Close()
		return nil, errors.Join(errs...)
	}
	return w, nil
}

func (w *watch) add(sub io.Closer) {
	w.mu.Lock()
	closed := w.told == nil
	if !closed {
		w.subs = append(w.subs, sub)
	}
	w.mu.Unlock()
	if closed {
		_ = sub.Close()
	}
}

func (w *watch) notice(i int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.told == nil || w.over() {
		return
	}
	w.told[i] = true
	if len(w.told) < w.d.quorum {
		return
	}
	clear(w.told)
	select {
	case w.c <- struct{}{}:
	default:
	}
}

// end is called when a node's notices end; without a majority of them it is over.
func (w *watch) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	before := w.over()
	if w.ended++; !before && w.over() {
		close(w.c)
	}
}

func (w *watch) over() bool { return w.ended > len(w.d.nodes)-w.d.quorum }

// Close implements [locker.Watch].
func (w *watch) Close() {
	w.mu.Lock()
	w.told = nil
	subs := w.subs
	w.subs = nil
	w.mu.Unlock()
	for _, s := range subs {
		_ = s.Close()
	}
}

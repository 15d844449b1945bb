package redlock

import (
	"context"
	"errors"
	"io"
	"maps"
	"sync"
	"time"

	"github.com/distlock/locker/driver"
	"github.com/distlock/locker/internal/bound"
	"github.com/distlock/locker/internal/wake"
)

// watch implements [driver.Watch] by the nodes' release notices: it signals when a
// majority has given notice, so that the attempt that follows finds one free.
//
// Lock order: that of a node's notices before mu.
type watch struct {
	wake.Signal
	d    *quorumDriver
	stop context.CancelFunc // of subscribing

	mu    sync.Mutex
	told  map[int]time.Time // when a node gave notice, since the last signal; nil when closed
	mute  map[int]bool      // nodes that give none
	ended bool              // too many of them; c is closed
	subs  []io.Closer
}

// noticeWindow is how long a node's notice waits for those of others about the
// same release. What is older was about something else.
const noticeWindow = 250 * time.Millisecond

const subscribeBudget = time.Second

// Watch implements [driver.Notifier].
func (d *quorumDriver) Watch(ctx context.Context, key string) (driver.Watch, error) {
	w := &watch{d: d, Signal: wake.New(), told: make(map[int]time.Time), mute: make(map[int]bool)}
	// Nodes that are slow to subscribe, or down, do so after this returns.
	life, stop := context.WithCancel(context.WithoutCancel(ctx))
	w.stop = stop
	results := make(chan error, len(d.nodes))
	for i := range d.nodes {
		d.background(func(base context.Context) {
			err := w.listen(life, key, i)
			results <- err
			for pause := 100 * time.Millisecond; err != nil; pause = min(2*pause, time.Second) {
				w.end(i)
				if !bound.Sleep(life, base.Done(), pause) {
					return
				}
				err = w.listen(life, key, i)
			}
		})
	}
	var errs []error
	for confirmed := 0; confirmed < d.quorum; {
		select {
		case err := <-results:
			if err == nil {
				confirmed++
				continue
			}
			errs = append(errs, err)
		case <-ctx.Done():
			w.Close()
			return nil, ctx.Err()
		}
		if len(errs) > len(d.nodes)-d.quorum {
			w.Close()
			return nil, errors.Join(errs...)
		}
	}
	return w, nil
}

// listen subscribes to the notices of node i.
func (w *watch) listen(ctx context.Context, key string, i int) error {
	n := w.d.nodes[i]
	if err := n.usable(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, subscribeBudget)
	defer cancel()
	sub, err := n.channels.Listen(ctx, key, func() { w.notice(i) }, func() { w.end(i) })
	if err == nil {
		w.add(i, sub)
	}
	return err
}

func (w *watch) add(i int, sub io.Closer) {
	w.mu.Lock()
	closed := w.told == nil
	if !closed {
		w.subs = append(w.subs, sub)
		delete(w.mute, i)
	}
	w.mu.Unlock()
	if closed {
		_ = sub.Close()
	}
}

// notice is called when node i gives notice.
func (w *watch) notice(i int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.told == nil || w.ended {
		return
	}
	now := time.Now()
	maps.DeleteFunc(w.told, func(_ int, at time.Time) bool { return now.Sub(at) > noticeWindow })
	w.told[i] = now
	// A lock that was held for a moment is on a majority only, of which some may be mute.
	if len(w.told) < max(1, w.d.quorum-len(w.mute)) {
		return
	}
	clear(w.told)
	w.Send()
}

// end is called when node i gives no notice, or no more. Without a majority that does,
// the watch is over.
func (w *watch) end(i int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mute[i] = true
	if !w.ended && len(w.mute) > len(w.d.nodes)-w.d.quorum {
		w.ended = true
		close(w.Signal)
	}
}

// Close implements [driver.Watch].
func (w *watch) Close() {
	w.stop()
	w.mu.Lock()
	w.told = nil
	subs := w.subs
	w.subs = nil
	w.mu.Unlock()
	for _, s := range subs {
		_ = s.Close()
	}
}

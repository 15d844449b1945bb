package memory

import (
	"context"
	"sync"

	"github.com/distlock/locker/driver"
)

// lossWatch implements [driver.LossWatch].
type lossWatch struct {
	s       *Store
	changed func(driver.Signal)
	done    chan struct{} // never closed

	mu     sync.Mutex
	claims map[string]string // ids by key
}

// DetectLoss implements [driver.LossDetector].
func (d storeDriver) DetectLoss(ctx context.Context, changed func(driver.Signal)) (driver.LossWatch, error) {
	if err := ctx.Err(); err != nil {
		return nil, &driver.StoreError{Err: err, NotApplied: true}
	}
	w := &lossWatch{s: d.s, changed: changed, done: make(chan struct{}), claims: make(map[string]string)}
	d.s.listeners.mu.Lock()
	defer d.s.listeners.mu.Unlock()
	if d.s.listeners.losses == nil {
		d.s.listeners.losses = make(map[*lossWatch]struct{})
	}
	d.s.listeners.losses[w] = struct{}{}
	return w, nil
}

// Watch implements [driver.LossWatch].
func (w *lossWatch) Watch(_ context.Context, more, less []driver.Claim) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range less {
		delete(w.claims, c.Key)
	}
	for _, c := range more {
		w.claims[c.Key] = c.ID
	}
	return nil
}

// Done implements [driver.LossWatch].
func (w *lossWatch) Done() <-chan struct{} { return w.done }

// Close implements [driver.LossWatch].
func (w *lossWatch) Close() {
	w.s.listeners.mu.Lock()
	defer w.s.listeners.mu.Unlock()
	delete(w.s.listeners.losses, w)
}

// changed lets the Lockers know whose locks of these keys were deleted.
func (l *listeners) changed(keys ...string) {
	l.mu.Lock()
	var all []*lossWatch
	for w := range l.losses {
		all = append(all, w)
	}
	l.mu.Unlock()
	for _, w := range all {
		for _, key := range keys {
			w.mu.Lock()
			id, watched := w.claims[key]
			w.mu.Unlock()
			if watched {
				w.changed(driver.Signal{Kind: driver.SignalBroken, Key: key, Claim: id})
			}
		}
	}
}

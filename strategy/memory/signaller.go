package memory

import (
	"context"
	"fmt"
	"sync"

	"github.com/distlock/locker/driver"
)

// listeners holds the listeners of the Lockers on a Store.
type listeners struct {
	mu     sync.Mutex
	all    map[*listener]struct{} // few: one for each Locker at most
	losses map[*lossWatch]struct{}
}

// listener implements [driver.Listener].
type listener struct {
	of     *listeners
	locker string
	c      chan driver.Signal
}

// C implements [driver.Listener].
func (l *listener) C() <-chan driver.Signal { return l.c }

// Close implements [driver.Listener].
func (l *listener) Close() {
	l.of.mu.Lock()
	defer l.of.mu.Unlock()
	delete(l.of.all, l)
}

// Listen implements [driver.Signaller].
func (d storeDriver) Listen(ctx context.Context, locker string) (driver.Listener, error) {
	if err := ctx.Err(); err != nil {
		return nil, &driver.StoreError{Err: err, NotApplied: true}
	}
	l := &listener{&d.s.listeners, locker, make(chan driver.Signal, driver.SignalBuffer)}
	l.of.mu.Lock()
	defer l.of.mu.Unlock()
	if l.of.all == nil {
		l.of.all = make(map[*listener]struct{})
	}
	l.of.all[l] = struct{}{}
	return l, nil
}

// Signal implements [driver.Signaller].
func (d storeDriver) Signal(ctx context.Context, s driver.Signal) error {
	locker, ok := driver.LockerOf(s.Claim)
	if !ok {
		return fmt.Errorf("%w: %.80q is no claim's id", driver.ErrInvalid, s.Claim)
	}
	if err := ctx.Err(); err != nil {
		return &driver.StoreError{Err: err, NotApplied: true}
	}
	d.s.listeners.mu.Lock()
	defer d.s.listeners.mu.Unlock()
	for l := range d.s.listeners.all {
		if l.locker == locker {
			select {
			case l.c <- s:
			default: // signals may be lost
			}
		}
	}
	return nil
}

package peersuite

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/distlock/locker/driver"
)

// Lock is a lock that a library has granted. An error of its functions matches [driver.ErrLost] if the library
// says that the lock is not held any more.
type Lock struct {
	Renew   func(context.Context) error
	Release func(context.Context) error
}

// ErrTaken is a refusal: another owner holds the lock.
var ErrTaken = errors.New("lock taken")

// Try calls a library once for a lock, without waiting.
type Try func(ctx context.Context, key string, ttl time.Duration) (Lock, error)

// Driver makes a driver of a library's calls. It adds nothing to them: it maps an error, and remembers the locks.
func Driver(name string, try Try, closeLibrary func() error) driver.Driver {
	return &adapter{name: name, try: try, close: closeLibrary, locks: map[string]Lock{}}
}

type adapter struct {
	name  string
	try   Try
	close func() error

	mu    sync.Mutex
	locks map[string]Lock // by the id of the claim
}

func (a *adapter) Name() string { return a.name }

func (a *adapter) Acquire(ctx context.Context, req driver.Request) (driver.Answer, error) {
	l, err := a.try(ctx, req.Key, req.TTL)
	if errors.Is(err, ErrTaken) {
		return driver.Answer{}, nil
	}
	if err != nil {
		return driver.Answer{}, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.locks[req.ID] = l
	return driver.Answer{Granted: true}, nil
}

func (a *adapter) Renew(ctx context.Context, claims []driver.Claim, answer func(i int, err error)) {
	var all sync.WaitGroup
	for i, c := range claims {
		all.Go(func() {
			l, ok := a.lock(c.ID, false)
			if !ok {
				answer(i, driver.ErrLost)
				return
			}
			answer(i, l.Renew(ctx))
		})
	}
	all.Wait()
}

// Release forgets a lock when the library has answered: a call that failed is made again.
func (a *adapter) Release(ctx context.Context, c driver.Claim) error {
	l, ok := a.lock(c.ID, false)
	if !ok {
		return driver.ErrLost
	}
	err := l.Release(ctx)
	if err == nil || errors.Is(err, driver.ErrLost) {
		a.lock(c.ID, true)
	}
	return err
}

func (a *adapter) lock(id string, forget bool) (Lock, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	l, ok := a.locks[id]
	if forget {
		delete(a.locks, id)
	}
	return l, ok
}

func (a *adapter) Close() error { return a.close() }

// PerTTL keeps a library's client for each TTL, where the TTL is the client's.
type PerTTL[C any] struct {
	open  func(time.Duration) (C, error)
	close func(C)

	mu  sync.Mutex
	all map[time.Duration]C
}

// ByTTL returns an empty PerTTL.
func ByTTL[C any](open func(time.Duration) (C, error), closeOne func(C)) *PerTTL[C] {
	return &PerTTL[C]{open: open, close: closeOne, all: map[time.Duration]C{}}
}

// For returns the client of a TTL.
func (p *PerTTL[C]) For(ttl time.Duration) (C, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c, ok := p.all[ttl]
	if ok {
		return c, nil
	}
	c, err := p.open(ttl)
	if err == nil {
		p.all[ttl] = c
	}
	return c, err
}

// Close closes all clients.
func (p *PerTTL[C]) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.all {
		p.close(c)
	}
	return nil
}

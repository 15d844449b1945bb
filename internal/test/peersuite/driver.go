package peersuite

import (
	"context"
	"errors"
	"sync"

	"github.com/distlock/locker/driver"
)

// Lock is a lock that a library has granted. An error of its functions matches [driver.ErrLost] if the library
// reports that the lock is not held any more. The functions may be called at the same time.
type Lock struct {
	Renew   func(context.Context) error
	Release func(context.Context) error
}

// ErrTaken is a refusal: another owner holds the lock.
var ErrTaken = errors.New("lock taken")

// Try calls a library once for the lock c.Key, without waiting. c.ID is unique: a library that lets its caller choose the
// value of the key is given it. With an error, a Lock that has Release can release what the failed call may have got.
type Try func(ctx context.Context, c driver.Claim) (Lock, error)

// Driver makes a driver of a library's calls, and remembers the locks. The id of a claim is used once.
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
	l, err := a.try(ctx, req.Claim)
	if errors.Is(err, ErrTaken) {
		return driver.Answer{}, nil
	}
	if err == nil || l.Release != nil {
		a.mu.Lock()
		a.locks[req.ID] = l
		a.mu.Unlock()
	}
	return driver.Answer{Granted: err == nil}, err
}

func (a *adapter) Renew(ctx context.Context, claims []driver.Claim, answer func(i int, err error)) {
	var all sync.WaitGroup
	for i, c := range claims {
		all.Go(func() {
			l, ok := a.lock(c.ID)
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
	l, ok := a.lock(c.ID)
	if !ok {
		return driver.ErrLost
	}
	err := l.Release(ctx)
	if err == nil || errors.Is(err, driver.ErrLost) {
		a.mu.Lock()
		delete(a.locks, c.ID)
		a.mu.Unlock()
	}
	return err
}

func (a *adapter) lock(id string) (Lock, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	l, ok := a.locks[id]
	return l, ok
}

func (a *adapter) Close() error { return a.close() }

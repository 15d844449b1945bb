// Package mutex makes a [sync.Locker] of a distributed lock, for code that takes
// nothing else. Where you have the choice, use [locker.Do]: it has a context to wait
// under, errors to return and a context that ends with the lock.
//
// A sync.Locker has no way to report that something went wrong, so New takes a function that
// is called then. The rest follows from one rule: Lock returns with the lock, or
// does not return.
//
//   - The store cannot be used: Lock calls the function each time that Lock of the Locker fails, and goes on
//     trying. In an outage this is once in max(TTL, 15 s).
//   - The store refuses the command, such as for a missing permission, or the key holds something that is no lock:
//     Lock calls the function and goes on trying, about once a second.
//   - The Locker is closed, so that Lock will never get the lock: Lock calls the
//     function and panics. End what uses a Mutex before you close its Locker.
//   - The lock is lost while it is held: the function is called at once, by a goroutine
//     of its own. The critical section gets no signal; let the function end what the
//     lock protects, by cancelling a context or by ending the process, or hand
//     the token of [Mutex.Lease] to the resource.
//   - Unlock could not give the lock back, or there was nothing to unlock: Unlock calls
//     the function and returns. The TTL frees the key.
//
// Goroutines that share a Mutex exclude each other even when the lock is lost. A Mutex
// is not re-entrant.
package mutex

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/adapters/internal/check"
)

// pause is the time between two attempts, with up to as much again of jitter. It is in
// addition to the time for which Lock of a Locker retries.
const pause = 500 * time.Millisecond

var _ sync.Locker = (*Mutex)(nil)

// Mutex is a lock on one key. Make it with [New]: Lock, TryLock and Unlock of a zero Mutex panic.
type Mutex struct {
	l     locker.Locker
	key   string
	opts  []locker.LockOption
	fails func(error)

	// inside has an element as long as the lock is held, or thought to be held. It is no
	// sync.Mutex since testing/synctest does not know how to wait for one.
	inside chan struct{}
	hold   atomic.Pointer[hold]
}

// hold is one critical section.
type hold struct {
	lease *locker.Lease
	stop  func() bool // ends the watch for a loss; false if the loss was reported
}

// Option configures a Mutex.
type Option interface {
	apply(*Mutex) error
}

type option func(*Mutex) error

func (o option) apply(to *Mutex) error { return o(to) }

// WithLockOptions gives the lock options. WithWait counts for nothing: Lock cannot give up.
func WithLockOptions(opts ...locker.LockOption) Option {
	return option(func(m *Mutex) error {
		m.opts = append(m.opts, opts...)
		return nil
	})
}

// New makes a Mutex on key. onError is called for every failure and every loss, possibly
// by several goroutines at once; its errors match those of package locker.
// A wrong argument is an error that matches [locker.ErrInvalid].
func New(l locker.Locker, key string, onError func(error), opts ...Option) (*Mutex, error) {
	m := &Mutex{l: l, key: key, fails: onError, inside: make(chan struct{}, 1)}
	err := check.Options(opts, func(o Option) error { return o.apply(m) })
	if err == nil && onError == nil {
		err = check.Invalid("New needs a function that receives failures and losses")
	}
	if err == nil {
		err = locker.Validate(l, key, m.opts...)
	}
	if err != nil {
		return nil, fmt.Errorf("mutex: %w", err)
	}
	m.opts = append(m.opts, locker.WithUnboundedWait()) // whatever the Locker's default is
	return m, nil
}

// made panics for a Mutex that could never be locked.
func (m *Mutex) made() {
	if m == nil || m.inside == nil {
		panic(fmt.Errorf("mutex: %w", check.Invalid("want a Mutex of New, got an empty one")))
	}
}

// Lock returns when the caller holds the lock. If it can never return, it panics, with an error that matches
// [locker.ErrClosed] or [locker.ErrInvalid].
func (m *Mutex) Lock() {
	m.made()
	m.inside <- struct{}{}
	entered := false
	defer func() {
		if !entered { // a panic
			<-m.inside
		}
	}()
	for {
		lease, err := m.l.Lock(context.Background(), m.key, m.opts...)
		if err == nil {
			m.enter(lease)
			entered = true
			return
		}
		m.fails(err)
		if errors.Is(err, locker.ErrClosed) || errors.Is(err, locker.ErrInvalid) {
			panic(fmt.Errorf("mutex: Lock can never return: %w", err))
		}
		time.Sleep(pause + rand.N(pause))
	}
}

// TryLock makes one attempt and reports whether the caller holds the lock. That
// another holder has it is no failure, and is not reported.
func (m *Mutex) TryLock() bool {
	m.made()
	entered, err := m.try()
	if err != nil && !errors.Is(err, locker.ErrNotAcquired) {
		m.fails(err)
	}
	return entered
}

func (m *Mutex) try() (entered bool, err error) {
	select {
	case m.inside <- struct{}{}:
	default:
		return false, nil
	}
	defer func() {
		if !entered { // a failure, or a panic
			<-m.inside
		}
	}()
	lease, err := m.l.TryLock(context.Background(), m.key, m.opts...)
	if err != nil {
		return false, err
	}
	m.enter(lease)
	return true, nil
}

func (m *Mutex) enter(lease *locker.Lease) {
	over := lease.Context(context.Background())
	m.hold.Store(&hold{lease, context.AfterFunc(over, func() { m.fails(context.Cause(over)) })})
}

// Unlock gives the lock back. It returns when the store has answered, or after 5 s.
func (m *Mutex) Unlock() {
	m.made()
	h := m.hold.Swap(nil)
	if h == nil {
		m.fails(fmt.Errorf("mutex: Unlock of %q: %w", m.key, locker.ErrNotHeld))
		return
	}
	defer func() { <-m.inside }()
	quiet := h.stop() // before the end of the lease's context, which is no loss now
	if err := h.lease.Unlock(context.Background()); err != nil && (quiet || !errors.Is(err, locker.ErrLost)) {
		m.fails(err)
	}
}

// Lease returns the present hold of the lock, for its Token, Err and Lost. It is nil while the
// Mutex is not locked. Leave its Unlock to the Mutex.
func (m *Mutex) Lease() *locker.Lease {
	if h := m.hold.Load(); h != nil {
		return h.lease
	}
	return nil
}

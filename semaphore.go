package locker

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"sync"

	"github.com/distlock/locker/internal/bound"
)

// Semaphore lets in at most a number of callers at the same time, of all processes that use
// it with the same number of permits. They are let in first come, first served, as the
// strategy's Locks are.
//
// A permit is the lock on the key with ":0", ":1" and so on behind it, with its own lease and
// a fencing token that orders the holders of this permit. A caller waits at a gate first, the
// lock on the key with ":gate" behind it. So a permit costs three round trips while some
// are free. Only the first caller in the queue waits for all of them, with as many
// commands a second as there are permits.
type Semaphore struct {
	l       Locker // which locks: a Client, or what wraps it
	key     string
	permits int
}

const maxPermits = 1000

// NewSemaphore returns the semaphore on key, of 1 to 1,000 permits. l is a [Client], or a
// [Wrapper] of one: then each Lock, of the gate, too, goes through the wrapper, which has to
// pass contexts and options on.
func NewSemaphore(l Locker, key string, permits int) (*Semaphore, error) {
	_, err := clientOf("NewSemaphore", l, key)
	switch {
	case err != nil:
		return nil, err
	case permits < 1 || permits > maxPermits:
		return nil, invalid("NewSemaphore(%q, %d): there are 1 to %d permits", key, permits, maxPermits)
	}
	return &Semaphore{l, key, permits}, nil
}

// Acquire waits for a permit, with [Locker].Lock's options and errors; WithWait bounds the
// wait as a whole, and WithWait(0) is one attempt at each permit, past those that wait. Unlock of the lease gives the permit
// back. There is no re-entry: each call gets a permit of its own, under any context.
func (s *Semaphore) Acquire(ctx context.Context, opts ...LockOption) (*Lease, error) {
	if ctx == nil || s == nil || s.l == nil {
		return nil, invalid("Acquire needs a context, and a semaphore that NewSemaphore has made")
	}
	wait, err := waitOf(s.l, opts)
	if err != nil {
		return nil, err
	}
	if wait.isTry() {
		return s.tryEach(ctx, opts)
	}
	gate, err := enterGate(ctx, s.l, s.key, wait)
	if err != nil {
		return nil, err
	}
	defer gate.giveBack(ctx)
	trying, cancel := wait.bound(ctx)
	defer cancel()
	l, err := s.l.TryLock(bareCtx{trying}, s.slot(rand.IntN(s.permits)), opts...)
	switch {
	case err == nil:
		return l, nil
	case errors.Is(err, ErrUnavailable) && ctx.Err() != nil:
		return nil, err
	case errors.Is(err, ErrUnavailable) && wait.isOver():
		return nil, wait.fail(s.l, s.key, err)
	}
	return s.anyOf(ctx, wait.rest(opts))
}

// tryEach asks for one permit after the other.
func (s *Semaphore) tryEach(ctx context.Context, opts []LockOption) (l *Lease, err error) {
	for _, i := range rand.Perm(s.permits) {
		l, err = s.l.TryLock(bareCtx{ctx}, s.slot(i), opts...)
		if !errors.Is(err, ErrNotAcquired) || ctx.Err() != nil {
			break
		}
	}
	return l, err
}

func (s *Semaphore) slot(i int) string { return s.key + ":" + strconv.Itoa(i) }

// anyOf waits for all permits at the same time, and keeps the first.
func (s *Semaphore) anyOf(ctx context.Context, opts []LockOption) (*Lease, error) {
	waiting, cancel := context.WithCancel(bound.Undated(ctx))
	defer cancel()
	var mu sync.Mutex
	var got *Lease
	errs := make([]error, s.permits)
	inParallel(s.permits, func(i int) {
		l, err := s.l.Lock(bareCtx{waiting}, s.slot(i), opts...)
		errs[i] = err
		if err != nil {
			return
		}
		mu.Lock()
		extra := l
		if got == nil {
			got, extra = l, nil
		}
		mu.Unlock()
		cancel()
		extra.giveBack(ctx)
	})
	if got != nil {
		return got, nil
	}
	for _, err := range errs {
		if !errors.Is(err, ErrNotAcquired) {
			return nil, err // trouble says more than a permit that is taken
		}
	}
	return nil, errs[0]
}

package locker

import (
	"context"
	"sync"
	"time"

	"github.com/distlock/locker/internal/bound"
)

// Pending is a Lock that goes on in the background; see [LockAsync]. Its methods may be
// called from many goroutines. A nil or zero Pending is a Lock that has failed with
// [ErrInvalid].
type Pending struct {
	done chan struct{}
	stop context.CancelFunc

	mu       sync.Mutex
	canceled bool
	taken    bool
	lease    *Lease
	err      error
}

// LockAsync begins a Lock, with the same arguments, and returns at once:
//
//	p := locker.LockAsync(ctx, l, "report")
//	defer p.Cancel()
//	select {
//	case <-p.Done():
//		lease, err := p.Lease()
//	case <-somethingElse:
//	}
//
// The lease is held, and renewed, from its grant on, also before Lease has returned it. A
// caller that does not want it any more calls Cancel; else the lock stays held.
func LockAsync(ctx context.Context, l Locker, key string, opts ...LockOption) *Pending {
	p := &Pending{done: make(chan struct{}), stop: func() {}}
	if ctx == nil || l == nil {
		p.err = invalid("LockAsync needs a context and a Locker; one of them is nil")
		close(p.done)
		return p
	}
	ctx, p.stop = context.WithCancel(bound.Undated(ctx))
	go func() {
		defer p.stop()
		lease, err := l.Lock(ctx, key, opts...)
		p.mu.Lock()
		p.lease, p.err = lease, err
		untaken := p.abandon()
		p.mu.Unlock()
		close(p.done)
		untaken.giveBack(ctx)
	}()
	return p
}

// Done returns a channel that is closed when Lock has returned.
func (p *Pending) Done() <-chan struct{} {
	if p.zero() {
		return closedChan
	}
	return p.done
}

func (p *Pending) zero() bool { return p == nil || p.done == nil }

// Lease waits until Lock has returned, and returns its lease or its error. From then on the caller
// has to unlock the lease. After Cancel the error is that of a Lock whose context has
// ended, unless Lease had returned before.
func (p *Pending) Lease() (*Lease, error) {
	if p.zero() {
		return nil, invalid("Lease of a Pending that no LockAsync returned")
	}
	<-p.done
	p.mu.Lock()
	defer p.mu.Unlock()
	p.taken = true
	return p.lease, p.err
}

// Cancel ends the Lock, and gives a granted lease back unless Lease has returned it.
// After Lease has returned it does nothing.
func (p *Pending) Cancel() {
	if p.zero() {
		return
	}
	p.stop()
	p.mu.Lock()
	p.canceled = true
	untaken := p.abandon()
	p.mu.Unlock()
	untaken.giveBack(context.Background())
}

// abandon returns the lease that is to be given back, if there is one. It needs mu.
func (p *Pending) abandon() *Lease {
	l := p.lease
	if l == nil || !p.canceled || p.taken {
		return nil
	}
	p.lease, p.err = nil, l.fail("lock", ErrNotAcquired, context.Canceled, "the caller has canceled it")
	return l
}

// giveBackWithin bounds the wait for a lease that is given back. A release that is not answered
// by then goes on in the background.
const giveBackWithin = 200 * time.Millisecond

// giveBack unlocks a lease that its caller does not get; nil is none.
func (l *Lease) giveBack(ctx context.Context) {
	if l == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), giveBackWithin)
	defer cancel()
	_ = l.Unlock(ctx)
}

package locker

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// stopContext is a parent whose children are long in leaving it.
type stopContext struct {
	context.Context
	first   *atomic.Bool
	stuck   chan struct{}
	proceed chan struct{}
}

func (c stopContext) Done() <-chan struct{} { return make(chan struct{}) }

// AfterFunc is what package context asks custom contexts for.
func (c stopContext) AfterFunc(func()) func() bool {
	return func() bool {
		if c.first.CompareAndSwap(false, true) {
			close(c.stuck)
			<-c.proceed
		}
		return true
	}
}

// TryLock comes back while contexts are being told of a loss.
func TestTryLockWhileALossIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, plain, WithTTL(time.Second), WithoutRenewal())
		parent := stopContext{t.Context(), new(atomic.Bool), make(chan struct{}), make(chan struct{})}
		defer close(parent.proceed)
		l := b.lock(t.Context(), "k")
		_ = l.Context(parent)
		<-parent.stuck
		_, err := b.TryLock(t.Context(), "k")
		wantErr(t, err, ErrNotAcquired, "in the store the TTL is not over")
		b.wantSent(opAcquire, 2, "nobody here holds it")
	})
}

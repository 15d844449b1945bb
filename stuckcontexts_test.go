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
	stuck   chan struct{} // closed when the first child leaves
	first   *atomic.Bool
	proceed chan struct{}
}

func (c stopContext) Done() <-chan struct{} { return make(chan struct{}) }

// AfterFunc is what package context asks custom contexts for.
func (c stopContext) AfterFunc(func()) func() bool {
	return func() bool {
		if c.first.CompareAndSwap(false, true) {
			close(c.stuck)
		}
		<-c.proceed
		return true
	}
}

// stuckContext is a parent that blocks whom it is asked by, in Done or in Value as well, from
// some time on.
type stuckContext struct {
	context.Context
	values, dones *atomic.Bool
	done          chan struct{}
	stuck         chan struct{} // receives for each that is blocked
	proceed       chan struct{}
}

func newStuckContext(ctx context.Context) stuckContext {
	return stuckContext{ctx, new(atomic.Bool), new(atomic.Bool), make(chan struct{}), make(chan struct{}, 100), make(chan struct{})}
}

func (c stuckContext) block(armed *atomic.Bool) {
	if armed.Load() {
		c.stuck <- struct{}{}
		<-c.proceed
	}
}

func (c stuckContext) Done() <-chan struct{} {
	c.block(c.dones)
	return c.done
}

func (c stuckContext) Value(key any) any {
	c.block(c.values)
	return c.Context.Value(key)
}

// A parent that blocks holds up the end of no other context of the same lease.
func TestOtherContextsOfALeaseEnd(t *testing.T) {
	for name, armed := range map[string]func(stuckContext) *atomic.Bool{
		"Done":  func(c stuckContext) *atomic.Bool { return c.dones },
		"Value": func(c stuckContext) *atomic.Bool { return c.values },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, plain, WithTTL(time.Second), WithoutRenewal())
				parent := newStuckContext(t.Context())
				defer close(parent.proceed)
				l := b.lock(t.Context(), "k")
				var others []context.Context
				for range 10 {
					_ = l.Context(parent)
					child, cancel := context.WithCancel(l.Context(t.Context())) // asks no clock
					defer cancel()
					others = append(others, child)
				}
				armed(parent).Store(true)
				b.until(988 * time.Millisecond)
				for i, ctx := range others {
					select {
					case <-ctx.Done():
					default:
						t.Errorf("context %d has not ended at %v", i, b.at())
					}
				}
			})
		})
	}
}

// Unlock does not wait for a parent of the lease's context that blocks in Done.
func TestUnlockWithAParentThatBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, plain, WithTTL(time.Second))
		parent := newStuckContext(t.Context())
		defer close(parent.proceed)
		l := b.lock(t.Context(), "k")
		ctx := l.Context(parent)
		parent.dones.Store(true)
		unlocking := b.unlocking(t.Context(), l)
		if !unlocking.over() || unlocking.err != nil {
			t.Fatalf("Unlock is over: %v, with %v; want nil at once", unlocking.over(), unlocking.err)
		}
		wantErr(t, ctx.Err(), context.Canceled, "the lease is over")
		if held := b.store.held("k"); held != "" {
			t.Errorf("%q holds the key", held)
		}
	})
}

// An Unlock that a parent context of the user's holds up does not hold up the waiters of
// the key beyond the TTL.
func TestWaiterBehindAnUnlockThatBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, plain)
		parent := newStuckContext(t.Context())
		l := b.lock(t.Context(), "k", WithTTL(time.Second), WithoutRenewal())
		_ = l.Context(parent)
		parent.values.Store(true)
		next := b.locking(t.Context(), "k")
		unlocking := b.unlocking(t.Context(), l)
		next.wantEnd(t, 0, time.Second+pollAgain, "the TTL has freed the key")
		close(parent.proceed)
		<-unlocking.done
		b.unlock(next.wantLease(t))
	})
}

package locker

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/distlock/locker/internal/bound"
)

// An inner Unlock under the outer lease's context comes back, though the claim is lost
// while the count is under way.
func TestInnerUnlockUnderOuterContext(t *testing.T) {
	for name, end := range map[string]func(*bench){
		"its deadline passes": func(b *bench) { b.store.from(opRenew, fail(errRefused)) },
		"Close":               func(b *bench) { time.AfterFunc(300*time.Millisecond, func() { _ = b.Close() }) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, counting, WithTTL(time.Second))
				outer := b.lock(t.Context(), "k")
				ctx := outer.Context(t.Context())
				inner := b.lock(ctx, "k")
				b.store.from(opSetHolds, hang)
				end(b)
				err := inner.Unlock(ctx)
				wantErr(t, err, ErrUnavailable, "the count was not answered")
				if n := outer.Holds(); n != 0 {
					t.Errorf("%d holds, want none: it is lost", n)
				}
			})
		})
	}
}

// Close does not wait for a context of the user's that is long in letting a child go.
func TestCloseWithBlockingContextOfACall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, plain)
		b.store.from(opAcquire, hang)
		parent := stopContext{t.Context(), make(chan struct{}), new(atomic.Bool), make(chan struct{})}
		defer close(parent.proceed)
		b.locking(parent, "k")
		_ = b.Close()
		wantBetween(t, "Close returned at", b.at(), 0, 5*time.Second, "it waits for nothing of the user's")
	})
}

// A caller's context may be that of a lease whose end nobody has noticed yet: to ask it
// takes the mutex of that lease's stripe, which may be the call's.
func TestCallsUnderALeaseThatHasEndedUnnoticed(t *testing.T) {
	t.Run("a queue that fails", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t, plain)
			k := b.sameStripe("a")
			a := b.lock(t.Context(), "a", WithTTL(10*time.Second), WithoutRenewal())
			b.store.from(opAcquire, fail(errRefused))
			b.locking(t.Context(), k, WithTTL(time.Second))
			next := b.locking(a.Context(t.Context()), k, WithTTL(time.Second))
			b.sched.Close() // its timer has not had its turn
			next.wantEnd(t, minOutage, minOutage+time.Second, "an outage")
		})
	})
	t.Run("Close", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t, plain)
			k := b.sameStripe("a")
			a := b.lock(t.Context(), "a", WithTTL(time.Second), WithoutRenewal())
			b.store.from(opAcquire, hang)
			b.locking(a.Context(t.Context()), k)
			b.sched.Close()
			b.until(2 * time.Second)
			_ = b.Close()
			wantBetween(t, "Close returned at", b.at(), 2*time.Second, 7*time.Second, "within 5s")
		})
	})
}

// A lost lease's context says so, also after its Unlock.
func TestCauseOfALostContextAfterUnlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for range 20 {
			b := newBench(t, plain, WithTTL(time.Second), WithoutRenewal())
			l := b.lock(t.Context(), "k")
			ctx := l.Context(t.Context())
			b.sched.Close()
			time.Sleep(2 * time.Second) // on the bubble's clock: past the deadline
			wantErr(t, l.Unlock(t.Context()), ErrLost, "its deadline has passed")
			wantErr(t, context.Cause(ctx), ErrLost, "it ended by loss")
		}
	})
}

// The events of an Unlock carry the values of the context it was given, also where that
// is derived from the lease's own.
func TestUnlockUnderOwnContextKeepsItsValues(t *testing.T) {
	type key struct{}
	synctest.Test(t, func(t *testing.T) {
		got := make(chan any, 1)
		b := newBench(t, plain, WithObserver(ObserverFunc(func(ctx context.Context, e Event) {
			if e.Kind == EventReleased {
				got <- ctx.Value(key{})
			}
		})))
		l := b.lock(t.Context(), "k")
		if err := l.Unlock(context.WithValue(l.Context(t.Context()), key{}, "trace")); err != nil {
			t.Fatal(err)
		}
		if v := <-got; v != "trace" {
			t.Errorf("the observer's context has %v, want the value of Unlock's", v)
		}
	})
}

// A context whose Deadline passes without its ending holds up nothing.
func TestDeadlineThatDoesNotEndTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, plain)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		b.store.from(opAcquire, fail(errRefused))
		l := b.locking(endless{ctx}, "k", WithTTL(time.Second))
		l.wantEnd(t, minOutage, minOutage+time.Second, "an outage")
	})
}

// endless overrides Done and Err, and forgets Deadline.
type endless struct{ context.Context }

func (endless) Done() <-chan struct{} { return nil }
func (endless) Err() error            { return nil }

// lateContext ends some time after its deadline, as one does whose timer is late.
type lateContext struct {
	context.Context
	done <-chan struct{}
}

func (c lateContext) Done() <-chan struct{} { return c.done }

func (c lateContext) Err() error {
	select {
	case <-c.done:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

// A wait that ends at its deadline ends in contention, though a connection notices the
// deadline before the context does.
func TestConnectionNoticesTheDeadlineFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, plain)
		timed, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		done := make(chan struct{})
		time.AfterFunc(150*time.Millisecond, func() { close(done) })
		b.store.from(opAcquire, func(c *command) error {
			bound.Sleep(context.Background(), nil, 100*time.Millisecond-b.at())
			return errReset // "i/o timeout"
		})
		_, err := b.Lock(lateContext{timed, done}, "k")
		wantErr(t, err, ErrNotAcquired, "the wait was over", ErrUnavailable)
		wantErr(t, err, context.DeadlineExceeded, "by its context")
		wantBetween(t, "Lock returned at", b.at(), 100*time.Millisecond, 100*time.Millisecond, "that was the deadline")
	})
}

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

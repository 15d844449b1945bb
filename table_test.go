package locker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/distlock/locker/driver"
)

// outsider is the code of others that a Locker calls: contexts, a driver with its errors and
// watches, an observer and a logger. Each call looks whether a stripe's mutex is locked.
type outsider struct {
	t     *testing.T
	b     atomic.Pointer[bench]
	looks atomic.Int64
}

// look fails the test if a stripe's mutex stays locked while it waits for it: the caller has
// locked it then, and not another goroutine.
func (f *outsider) look(who string) {
	b := f.b.Load()
	if b == nil || f.t.Failed() {
		return
	}
	f.looks.Add(1)
	for i := range b.stripes {
		if !comesFree(&b.stripes[i]) {
			f.t.Errorf("%s is called under a stripe's mutex", who)
		}
	}
}

func comesFree(s *stripe) bool {
	for range 20_000_000 { // seconds: the machine may have stopped the goroutine that has locked it
		if s.mu.TryLock() {
			s.mu.Unlock()
			return true
		}
		runtime.Gosched()
	}
	return false
}

// foreignContext is a context of the user's.
type foreignContext struct {
	context.Context
	f *outsider
}

func (c foreignContext) Deadline() (time.Time, bool) {
	c.f.look("Deadline of a context")
	return c.Context.Deadline()
}

func (c foreignContext) Done() <-chan struct{} {
	c.f.look("Done of a context")
	return c.Context.Done()
}

func (c foreignContext) Err() error {
	c.f.look("Err of a context")
	return c.Context.Err()
}

func (c foreignContext) Value(key any) any {
	c.f.look("Value of a context")
	return c.Context.Value(key)
}

// foreignError is a driver's error.
type foreignError struct {
	err error
	f   *outsider
}

func (e foreignError) Error() string {
	e.f.look("Error of a driver's error")
	return e.err.Error()
}

func (e foreignError) Unwrap() error {
	e.f.look("Unwrap of a driver's error")
	return e.err
}

func (e foreignError) Is(error) bool {
	e.f.look("Is of a driver's error")
	return false
}

// Handle implements [slog.Handler].
func (f *outsider) Handle(context.Context, slog.Record) error {
	f.look("Handle of a logger")
	return nil
}

// Enabled implements [slog.Handler].
func (f *outsider) Enabled(context.Context, slog.Level) bool {
	f.look("Enabled of a logger")
	return true
}

// WithAttrs implements [slog.Handler].
func (f *outsider) WithAttrs([]slog.Attr) slog.Handler { f.look("WithAttrs of a logger"); return f }

// WithGroup implements [slog.Handler].
func (f *outsider) WithGroup(string) slog.Handler { f.look("WithGroup of a logger"); return f }

// A stripe's mutex stops a 64th of all keys. So nothing foreign, which could be slow or come
// back to the Locker, runs under it.
func TestNothingForeignUnderTheMutex(t *testing.T) {
	for _, k := range []kind{plain, counting, notifying, sharding} {
		t.Run(fmt.Sprint(k), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &outsider{t: t}
				b := newBench(t, k, WithTTL(time.Second), WithLogger(slog.New(f)))
				b.store.blocks = true
				b.store.called = func() { f.look("a driver") }
				f.b.Store(b)
				parent, cancel := context.WithCancel(t.Context())
				defer cancel()
				ctx := foreignContext{parent, f}
				f.contention(ctx, b)
				f.trouble(ctx, b)
				f.losses(ctx, b)
				_ = b.Close()
				if n := f.looks.Load(); n < 100 {
					t.Errorf("%d looks, want 100: the foreign code was not called", n)
				}
			})
		})
	}
}

// contention queues, hands over, re-enters and gives up.
func (f *outsider) contention(ctx context.Context, b *bench) {
	first := b.lock(ctx, "k")
	inner := b.lock(first.Context(ctx), "k")
	soon, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	gone := b.locking(foreignContext{soon, f}, "k")
	second := b.locking(ctx, "k")
	named := b.locking(ContextWithOwner(ctx, "ann"), "k", WithWait(time.Minute))
	third := b.locking(ctx, "k", WithTTL(2*time.Second))
	_, err := b.TryLock(ctx, "k")
	wantErr(f.t, err, ErrNotAcquired, "it is held here")
	wantErr(f.t, gone.wantFailure(), ErrNotAcquired, "its time is over")
	b.unlock(inner)
	_ = first.Unlock(first.Context(ctx))
	for _, next := range []*locking{second, named, third} {
		l := next.wantLease(f.t)
		_ = Do(l.Context(ctx), b, "k", func(ctx context.Context) error { return ctx.Err() })
		b.unlock(l)
	}
	if err := b.lock(ctx, "left").LetExpire(); err != nil {
		f.t.Error(err)
	}
	b.store.seize("k", "stranger", 300*time.Millisecond)
	b.unlock(b.lock(ctx, "k"))
}

func (l *locking) wantFailure() error {
	<-l.done
	return l.err
}

// trouble gets every command to fail with foreign errors, and to succeed after that.
func (f *outsider) trouble(ctx context.Context, b *bench) {
	refused := foreignError{errRefused, f}
	reset := foreignError{errReset, f}
	denied := foreignError{driver.ErrLost, f}
	b.store.next(opAcquire, fail(refused), failAfter(reset))
	b.store.next(opWatch, fail(reset))
	l := b.lock(ctx, "trouble")
	b.store.next(opRenew, fail(reset), obey, fail(refused))
	b.until(b.at() + 2*time.Second)
	wantErr(f.t, l.Err(), nil, "it was renewed")
	b.store.next(opSetHolds, fail(refused), failAfter(reset))
	inner := b.lock(l.Context(ctx), "trouble")
	b.store.next(opSetHolds, failAfter(reset), fail(refused))
	b.unlock(inner)
	b.store.next(opRelease, fail(refused), failAfter(reset))
	b.unlock(l)
	l = b.lock(ctx, "trouble")
	b.store.next(opRelease, fail(denied))
	wantErr(f.t, l.Unlock(ctx), ErrLost, "the store says so")
	b.store.from(opRelease, fail(reset))
	wantErr(f.t, b.lock(ctx, "left behind").Unlock(ctx), ErrUnavailable, "the store does not answer")
	b.until(b.at() + 3*time.Second)
	b.store.from(opRelease, obey)
	b.store.next(opRelease, fail(foreignError{errNoPerm, f}))
	wantErr(f.t, b.lock(ctx, "refused").Unlock(ctx), ErrUnavailable, "the store forbids it")
	b.store.from(opAcquire, fail(reset))
	_, err := b.Lock(ctx, "trouble")
	wantErr(f.t, err, ErrUnavailable, "the store is away")
	_, err = b.Lock(ctx, "trouble", WithWait(time.Second))
	wantErr(f.t, err, ErrUnavailable, "the store is away")
	b.store.from(opAcquire, obey)
}

// losses ends leases in each way there is, with contexts of their own.
func (f *outsider) losses(ctx context.Context, b *bench) {
	denied := foreignError{driver.ErrLost, f}
	ann := ContextWithOwner(ctx, "ann")
	lose := func(key string, end func(*Lease), opts ...LockOption) {
		l := b.lock(ann, key, opts...)
		child := l.Context(ctx)
		waiting := b.locking(ctx, key)
		end(l)
		<-child.Done()
		_, err := b.TryLock(ann, key)
		wantErr(f.t, err, ErrLost, "its lease is not unlocked")
		if err := l.Unlock(ctx); !errors.Is(err, ErrLost) {
			f.t.Errorf("Unlock: %v, want %v", err, ErrLost)
		}
		b.unlock(waiting.wantLease(f.t))
	}
	lose("renewal", func(*Lease) { b.store.next(opRenew, fail(denied)) })
	lose("Renew", func(l *Lease) {
		b.store.next(opRenew, fail(denied))
		wantErr(f.t, l.Renew(ctx), ErrLost, "the store says so")
	})
	lose("deadline", func(*Lease) {}, WithoutRenewal())
	lose("limit", func(*Lease) {}, WithMaxHold(500*time.Millisecond))
	lose("renewals", func(*Lease) {}, WithMaxRenewals(1))
	held := b.lock(ann, "Close")
	_ = held.Context(ctx)
	b.locking(ctx, "Close")
	_ = b.Close()
	_ = held.Unlock(ctx)
}

// Package singleflight lets one caller of all processes compute a value that many want at the same time; the others
// wait and read the result.
//
//	reports, err := singleflight.New(l, singleflight.NewRedis(rdb))
//	...
//	page, err := reports.Do(ctx, "2026-11", func(ctx context.Context) ([]byte, error) {
//		return render(ctx) // in one process
//	})
//
// A value is kept for a minute ([WithTTL]). While it is there, Do costs one command to the [Store]. Where it is
// missing, Do takes a lock, looks again, computes and stores: as many callers as there may be, in as many processes,
// the function runs once.
//
// A value that many read must not run out while all wait for the next one. So shortly before its end one
// caller computes it anew, while the others go on reading: when that is depends on chance and on how long the
// last computation took ([WithEarly]), as in Vattani, Chierichetti and Lowenstein, Optimal Probabilistic Cache
// Stampede Prevention.
//
// It guarantees that two callers do not compute a key at the same time, as far as locks can: the context of a
// function ends when its lock is lost, with a cause that matches [locker.ErrLost]. A result that comes after the loss is not
// stored; if a pause hides the loss, its token is too small for the result of a later computation to be replaced. Limits:
//
//   - An error is not kept. The callers of this process that wait get it, too; another process computes for itself.
//   - A Store that fails counts as one that has no value. If it fails for long, callers compute one after the other.
//   - A function must not call Do for its own key: it would wait for itself.
//   - A Locker made with [locker.WithoutFencing] grants no tokens: a result that comes after an unnoticed loss may replace a later one.
package singleflight

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	mathrand "math/rand/v2"
	"sync"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/adapters/internal/check"
)

// Group has the calls that share results. It is safe for use by many goroutines. Make it with [New].
type Group struct {
	settings
	l     locker.Locker
	store Store

	mu      sync.Mutex
	flights map[string]*flight
}

// Func computes a value. Its context has the values of the call that began it, and ends when
// every call that waits for it has, or the lock is lost.
type Func func(ctx context.Context) ([]byte, error)

// New makes a Group. A wrong argument is an error that matches [locker.ErrInvalid].
func New(l locker.Locker, s Store, opts ...Option) (*Group, error) {
	set, err := newSettings(opts)
	switch {
	case err != nil:
	case s == nil:
		err = check.Invalid("New: the Store is nil; NewRedis makes one")
	default:
		err = locker.Validate(l, set.prefix+"lock:x", set.lock...)
	}
	if err != nil {
		return nil, fmt.Errorf("singleflight: %w", err)
	}
	return &Group{settings: set, l: l, store: s, flights: make(map[string]*flight)}, nil
}

// flight holds the result that calls of this process with one key wait for.
type flight struct {
	done    chan struct{}
	value   []byte
	err     error
	early   chan struct{} // closed when present is the value, and the flight is to compute it anew
	present []byte
	waiters int
	stop    context.CancelFunc
}

// Do returns the value of key, which fn computes unless it is there or somebody else computes it. The value is shared:
// do not change it. It returns fn's error as it is; ctx's error, when ctx ends; and the Locker's errors:
// [locker.ErrUnavailable] if the lock could not be had, see [ComputeWhenUnavailable].
func (g *Group) Do(ctx context.Context, key string, fn Func) ([]byte, error) {
	if ctx == nil || fn == nil {
		return nil, fmt.Errorf("singleflight: %w", check.Invalid("Do needs a context and a function; one of them is nil"))
	}
	f, early := g.join(ctx, key, fn)
	select {
	case <-f.done:
		return f.value, f.err
	case <-early:
		g.leave(key, f)
		return f.present, nil
	case <-ctx.Done():
		g.leave(key, f)
		return nil, fmt.Errorf("singleflight: %q: %w", key, endOf(ctx))
	}
}

// endOf returns ctx's error, and its cause if that is another one.
func endOf(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if errors.Is(err, cause) {
		return err
	}
	return fmt.Errorf("%w: %w", err, cause)
}

// join joins the flight of key, or begins one. The call that begins it waits until its end; those that join wait for
// early, too.
func (g *Group) join(ctx context.Context, key string, fn Func) (f *flight, early <-chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if f := g.flights[key]; f != nil {
		f.waiters++
		return f, f.early
	}
	f = &flight{done: make(chan struct{}), early: make(chan struct{}), waiters: 1}
	ctx, f.stop = context.WithCancel(context.WithoutCancel(ctx))
	g.flights[key] = f
	go func() {
		defer f.stop()
		defer close(f.done)
		defer g.forget(key, f)
		f.err = fmt.Errorf("%w, or ended its goroutine", ErrPanicked) // unless fly returns
		f.value, f.err = g.fly(ctx, f, key, fn)
	}()
	return f, nil
}

// leave ends the flight when nobody waits for it any more. The next call begins another one.
func (g *Group) leave(key string, f *flight) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if f.waiters--; f.waiters == 0 {
		f.stop()
		if g.flights[key] == f {
			delete(g.flights, key)
		}
	}
}

func (g *Group) forget(key string, f *flight) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.flights[key] == f {
		delete(g.flights, key)
	}
}

func (g *Group) fly(ctx context.Context, f *flight, key string, fn Func) ([]byte, error) {
	r, ok := g.get(ctx, key)
	if ok && !g.isEarly(r) {
		return r.Value, nil
	}
	lock := g.l.Lock
	switch {
	case g.compute && !ok:
		lock = g.lockOrUnavailable
	case ok:
		lock = g.l.TryLock
		f.present = r.Value
		close(f.early)
	}
	// The owner is new, so that a caller whose context names one does not share the lock of others that name it. It is
	// this lock's only: the goroutines of fn would share every lock that they take under it.
	lease, err := lock(locker.ContextWithOwner(ctx, rand.Text()), g.prefix+"lock:"+key, g.lock...)
	switch {
	case err == nil:
	case ok: // somebody else computes it anew, or nobody can now
		return r.Value, nil
	case g.compute && errors.Is(err, locker.ErrUnavailable) && ctx.Err() == nil: // else all callers have left
		return guarded(ctx, fn)
	default:
		return nil, fmt.Errorf("singleflight: %q: %w", key, err)
	}
	defer lease.Unlock(ctx) //nolint:errcheck // the Locker's log shows it; the TTL frees the key
	now, is := g.get(ctx, key)
	if is && (!ok || now.Token != r.Token) {
		return now.Value, nil // computed since
	}
	began := time.Now()
	value, err := guarded(lease.Context(ctx), fn)
	if err != nil {
		if ok {
			return r.Value, nil // it is valid for a while
		}
		return nil, err
	}
	if lease.Err() != nil { // a later result may have been there and be over: its token refuses this one no more
		return value, nil
	}
	// A caller that has left does not take the result away from others.
	put, cancel := context.WithTimeout(context.WithoutCancel(ctx), putTimeout)
	defer cancel()
	_ = g.store.Put(put, g.prefix+"result:"+key, Result{Value: value, Token: lease.Token(), Took: time.Since(began)}, g.ttl)
	return value, nil
}

// lockOrUnavailable waits for a lock that somebody holds. Unlike Lock it does not wait for a store that does not answer.
func (g *Group) lockOrUnavailable(ctx context.Context, key string, opts ...locker.LockOption) (*locker.Lease, error) {
	lease, err := g.l.TryLock(ctx, key, opts...)
	if errors.Is(err, locker.ErrNotAcquired) {
		return g.l.Lock(ctx, key, opts...)
	}
	return lease, err
}

// putTimeout bounds how long the callers wait until their value is stored.
const putTimeout = 5 * time.Second

func (g *Group) get(ctx context.Context, key string) (Result, bool) {
	r, ok, err := g.store.Get(ctx, g.prefix+"result:"+key)
	return r, ok && err == nil
}

// isEarly decides whether this call computes the value anew: the more likely, the sooner the value ends.
func (g *Group) isEarly(r Result) bool {
	return g.early > 0 && float64(r.Remaining) < float64(r.Took)*g.early*-math.Log(1-mathrand.Float64())
}

// ErrPanicked is the error of the calls that waited for a function that panicked, or called [runtime.Goexit].
var ErrPanicked = errors.New("singleflight: the function panicked")

// guarded returns a panic as an error: fn runs in a goroutine of the Group's, whose panic would end the process.
func guarded(ctx context.Context, fn Func) (value []byte, err error) {
	defer func() {
		if v := recover(); v != nil {
			value, err = nil, fmt.Errorf("%w: %v", ErrPanicked, v)
		}
	}()
	return fn(ctx)
}

package conformance_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/conformance"
	"github.com/distlock/locker/conformance/internal/suite"
	"github.com/distlock/locker/driver"
)

// fullDriver is a driver that can do everything, in this process or in another one.
type fullDriver interface {
	driver.Driver
	driver.Notifier
	driver.HoldCounter
	driver.Configurer
}

// changed is a sound driver with some methods replaced.
type changed[D fullDriver] struct {
	sound     D
	acquire   func(d D, ctx context.Context, req driver.Request) (driver.Answer, error)
	renew     func(d D, ctx context.Context, claims []driver.Claim, answer func(int, error))
	renewEach func(d D, ctx context.Context, c driver.Claim) error
	release   func(d D, ctx context.Context, c driver.Claim) error
	watch     func(d D, ctx context.Context, key string) (driver.Watch, error)
	setHolds  func(d D, ctx context.Context, c driver.Claim, n int) error
	configure func(d D, c driver.Config) (driver.Settings, error)
	close     func(d D) error
}

func (d changed[D]) Acquire(ctx context.Context, req driver.Request) (driver.Answer, error) {
	if d.acquire != nil {
		return d.acquire(d.sound, ctx, req)
	}
	return d.sound.Acquire(ctx, req)
}

func (d changed[D]) Renew(ctx context.Context, claims []driver.Claim, answer func(int, error)) {
	switch {
	case d.renew != nil:
		d.renew(d.sound, ctx, claims, answer)
	case d.renewEach != nil:
		for i, c := range claims {
			answer(i, d.renewEach(d.sound, ctx, c))
		}
	default:
		d.sound.Renew(ctx, claims, answer)
	}
}

func (d changed[D]) Release(ctx context.Context, c driver.Claim) error {
	if d.release != nil {
		return d.release(d.sound, ctx, c)
	}
	return d.sound.Release(ctx, c)
}

func (d changed[D]) Watch(ctx context.Context, key string) (driver.Watch, error) {
	if d.watch != nil {
		return d.watch(d.sound, ctx, key)
	}
	return d.sound.Watch(ctx, key)
}

func (d changed[D]) SetHolds(ctx context.Context, c driver.Claim, n int) error {
	if d.setHolds != nil {
		return d.setHolds(d.sound, ctx, c, n)
	}
	return d.sound.SetHolds(ctx, c, n)
}

func (d changed[D]) Configure(c driver.Config) (driver.Settings, error) {
	if d.configure != nil {
		return d.configure(d.sound, c)
	}
	return d.sound.Configure(c)
}

func (d changed[D]) Close() error {
	if d.close != nil {
		return d.close(d.sound)
	}
	return d.sound.Close()
}

// The other methods of a changed driver are those of the sound one, a level deeper.
type (
	restOfCounting struct{ *counting }
	restOfFull     struct{ fullDriver }
)

// counted is a counting driver, changed: what is wrong is in the store.
type counted struct {
	changed[*counting]
	restOfCounting
}

func newCounted(s *fakeStore) counted {
	d := withCounts(s).(*counting)
	return counted{changed[*counting]{sound: d}, restOfCounting{d}}
}

// with makes a driver of the counting one, changed by f. f is called once for
// each Locker.
func with(f func(d *counted)) fake {
	v := fakeCounting
	v.fakeDriver = func(s *fakeStore) driver.Driver {
		d := newCounted(s)
		f(&d)
		return d
	}
	return v
}

// nearby is a driver, changed: what is wrong is not in the store but in the process that
// locks.
type nearby struct {
	changed[fullDriver]
	restOfFull
}

// near makes a driver of the counting one, changed by f. f is called once for each
// Locker.
func near(f func(d *nearby)) fake {
	v := fakeCounting
	v.near = func(sound fullDriver) driver.Driver {
		d := nearby{changed[fullDriver]{sound: sound}, restOfFull{sound}}
		f(&d)
		return d
	}
	return v
}

func acquiring(f func(d *counting, ctx context.Context, req driver.Request) (driver.Answer, error)) fake {
	return with(func(d *counted) { d.acquire = f })
}

func renewing(f func(d *counting, ctx context.Context, c driver.Claim) error) fake {
	return with(func(d *counted) { d.renewEach = f })
}

func releasing(f func(d *counting, ctx context.Context, c driver.Claim) error) fake {
	return with(func(d *counted) { d.release = f })
}

// renaming is a strategy that has another idea of keys.
func renaming(rename func(string) string) fake {
	return with(func(d *counted) {
		d.acquire = func(d *counting, ctx context.Context, req driver.Request) (driver.Answer, error) {
			req.Key = rename(req.Key)
			return d.Acquire(ctx, req)
		}
		d.renewEach = func(d *counting, ctx context.Context, c driver.Claim) error {
			c.Key = rename(c.Key)
			return d.renewOne(ctx, c)
		}
		d.release = func(d *counting, ctx context.Context, c driver.Claim) error {
			c.Key = rename(c.Key)
			return d.Release(ctx, c)
		}
		d.watch = func(d *counting, ctx context.Context, key string) (driver.Watch, error) {
			return d.Watch(ctx, rename(key))
		}
		d.setHolds = func(d *counting, ctx context.Context, c driver.Claim, n int) error {
			c.Key = rename(c.Key)
			return d.SetHolds(ctx, c, n)
		}
	})
}

// locked runs f with the store's mutex held.
func (d *fakeDriver) locked(f func()) {
	d.s.Mu.Lock()
	defer d.s.Mu.Unlock()
	f()
}

// options makes a strategy whose Lockers are given opts after those asked for.
func options(opts ...locker.Option) fake {
	v := fakeCounting
	v.opts = opts
	return v
}

// claiming is a sound strategy that claims what it has not.
func claiming(f fake, claim func(c *conformance.Capabilities)) fake {
	caps := f.caps
	f.caps = func(c *conformance.Capabilities) {
		if caps != nil {
			caps(c)
		}
		claim(c)
	}
	return f
}

// noValues is a context that has forgotten its values, except the suite's own.
type noValues struct{ context.Context }

func (c noValues) Value(key any) any {
	if suite.IsMark(key) {
		return c.Context.Value(key)
	}
	return nil
}

// looking is a Lock that waits by trying again and again.
func looking(every time.Duration) fake {
	return lookingIf(every, func() (may func() bool, leave func()) { return func() bool { return true }, func() {} })
}

// lastFirst is a Lock that tries again and again while nobody has come later.
func lastFirst() fake {
	var mu sync.Mutex
	var waiting []*int
	return lookingIf(5*time.Millisecond, func() (may func() bool, leave func()) {
		mu.Lock()
		defer mu.Unlock()
		me := new(int)
		waiting = append(waiting, me)
		return func() bool {
				mu.Lock()
				defer mu.Unlock()
				return waiting[len(waiting)-1] == me
			}, func() {
				mu.Lock()
				defer mu.Unlock()
				waiting = slices.DeleteFunc(waiting, func(o *int) bool { return o == me })
			}
	})
}

// lookingIf is a Lock that tries again and again when it may.
func lookingIf(every time.Duration, enter func() (may func() bool, leave func())) fake {
	return wrapping(wrapped{lock: func(l locker.Locker, ctx context.Context, key string, opts ...locker.LockOption) (*locker.Lease, error) {
		may, leave := enter()
		defer leave()
		for {
			if !may() {
				suite.SeenWaiting(ctx)
				select {
				case <-ctx.Done():
					return nil, fmt.Errorf("%w: %w", locker.ErrNotAcquired, ctx.Err())
				case <-time.After(every):
				}
				continue
			}
			lease, err := l.TryLock(ctx, key, opts...)
			if err == nil || !errors.Is(err, locker.ErrNotAcquired) {
				return lease, err
			}
			suite.SeenWaiting(ctx)
			select {
			case <-ctx.Done():
				return nil, fmt.Errorf("%w: %w", locker.ErrNotAcquired, ctx.Err())
			case <-time.After(every):
			}
		}
	}})
}

// lockingWith is a strategy whose calls have more options than asked for.
func lockingWith(more ...locker.LockOption) fake {
	return wrapping(wrapped{
		lock: func(l locker.Locker, ctx context.Context, key string, opts ...locker.LockOption) (*locker.Lease, error) {
			return l.Lock(ctx, key, append(opts, more...)...)
		},
		tryLock: func(l locker.Locker, ctx context.Context, key string, opts ...locker.LockOption) (*locker.Lease, error) {
			return l.TryLock(ctx, key, append(opts, more...)...)
		},
	})
}

// renewOne renews as the sound driver does.
func (d *counting) renewOne(ctx context.Context, c driver.Claim) (err error) {
	d.Renew(ctx, []driver.Claim{c}, func(_ int, e error) { err = e })
	return err
}

// deafWatch hears nothing.
type deafWatch struct{}

func (deafWatch) C() <-chan struct{} { return nil }
func (deafWatch) Close()             {}

package conformance_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/conformance"
	"github.com/distlock/locker/conformance/internal/suite"
	"github.com/distlock/locker/driver"
)

// counted is a counting driver with some methods replaced.
type counted struct {
	*counting
	acquire  func(d *counting, ctx context.Context, req driver.Request) (driver.Answer, error)
	renew    func(d *counting, ctx context.Context, c driver.Claim) error
	release  func(d *counting, ctx context.Context, c driver.Claim) error
	watch    func(d *counting, ctx context.Context, key string) (driver.Watch, error)
	setHolds func(d *counting, ctx context.Context, c driver.Claim, n int) error
	close    func(d *counting) error
}

func (d counted) Acquire(ctx context.Context, req driver.Request) (driver.Answer, error) {
	if d.acquire != nil {
		return d.acquire(d.counting, ctx, req)
	}
	return d.counting.Acquire(ctx, req)
}

func (d counted) Renew(ctx context.Context, claims []driver.Claim, answer func(int, error)) {
	if d.renew == nil {
		d.counting.Renew(ctx, claims, answer)
		return
	}
	for i, c := range claims {
		answer(i, d.renew(d.counting, ctx, c))
	}
}

func (d counted) Release(ctx context.Context, c driver.Claim) error {
	if d.release != nil {
		return d.release(d.counting, ctx, c)
	}
	return d.counting.Release(ctx, c)
}

func (d counted) Watch(ctx context.Context, key string) (driver.Watch, error) {
	if d.watch != nil {
		return d.watch(d.counting, ctx, key)
	}
	return d.counting.Watch(ctx, key)
}

func (d counted) SetHolds(ctx context.Context, c driver.Claim, n int) error {
	if d.setHolds != nil {
		return d.setHolds(d.counting, ctx, c, n)
	}
	return d.counting.SetHolds(ctx, c, n)
}

func (d counted) Close() error {
	if d.close != nil {
		return d.close(d.counting)
	}
	return d.counting.Close()
}

// with makes a driver of the counting one, changed by f. f is called once for
// each Locker.
func with(f func(d *counted)) fake {
	v := fakeCounting
	v.fakeDriver = func(s *fakeStore) driver.Driver {
		d := counted{counting: withCounts(s).(*counting)}
		f(&d)
		return d
	}
	return v
}

func acquiring(f func(d *counting, ctx context.Context, req driver.Request) (driver.Answer, error)) fake {
	return with(func(d *counted) { d.acquire = f })
}

func renewing(f func(d *counting, ctx context.Context, c driver.Claim) error) fake {
	return with(func(d *counted) { d.renew = f })
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
		d.renew = func(d *counting, ctx context.Context, c driver.Claim) (err error) {
			c.Key = rename(c.Key)
			d.Renew(ctx, []driver.Claim{c}, func(_ int, e error) { err = e })
			return err
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

// wrapped is a Locker with Lock and TryLock replaced.
type wrapped struct {
	locker.Locker
	lock, tryLock func(l locker.Locker, ctx context.Context, key string, opts ...locker.LockOption) (*locker.Lease, error)
	close         func(l locker.Locker) error
}

func (w wrapped) Lock(ctx context.Context, key string, opts ...locker.LockOption) (*locker.Lease, error) {
	if w.lock != nil {
		return w.lock(w.Locker, ctx, key, opts...)
	}
	return w.Locker.Lock(ctx, key, opts...)
}

func (w wrapped) TryLock(ctx context.Context, key string, opts ...locker.LockOption) (*locker.Lease, error) {
	if w.tryLock != nil {
		return w.tryLock(w.Locker, ctx, key, opts...)
	}
	return w.Locker.TryLock(ctx, key, opts...)
}

func (w wrapped) Close() error {
	if w.close != nil {
		return w.close(w.Locker)
	}
	return w.Locker.Close()
}

func wrapping(w wrapped) fake {
	v := fakeCounting
	v.wrap = func(l locker.Locker) locker.Locker {
		w := w
		w.Locker = l
		return w
	}
	return v
}

// changing passes every call on with another context.
func changing(f func(ctx context.Context) context.Context) fake {
	return wrapping(wrapped{
		lock: func(l locker.Locker, ctx context.Context, key string, opts ...locker.LockOption) (*locker.Lease, error) {
			return l.Lock(f(ctx), key, opts...)
		},
		tryLock: func(l locker.Locker, ctx context.Context, key string, opts ...locker.LockOption) (*locker.Lease, error) {
			return l.TryLock(f(ctx), key, opts...)
		},
	})
}

// failing passes every error on as another one.
func failing(f func(err error) error) fake {
	return wrapping(wrapped{
		lock: func(l locker.Locker, ctx context.Context, key string, opts ...locker.LockOption) (*locker.Lease, error) {
			lease, err := l.Lock(ctx, key, opts...)
			return lease, f(err)
		},
		tryLock: func(l locker.Locker, ctx context.Context, key string, opts ...locker.LockOption) (*locker.Lease, error) {
			lease, err := l.TryLock(ctx, key, opts...)
			return lease, f(err)
		},
	})
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
	return wrapping(wrapped{lock: func(l locker.Locker, ctx context.Context, key string, opts ...locker.LockOption) (*locker.Lease, error) {
		for {
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
func (d counted) renewOne(ctx context.Context, c driver.Claim) (err error) {
	d.counting.Renew(ctx, []driver.Claim{c}, func(_ int, e error) { err = e })
	return err
}

// deafWatch hears nothing.
type deafWatch struct{}

func (deafWatch) C() <-chan struct{} { return nil }
func (deafWatch) Close()             {}

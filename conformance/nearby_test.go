package conformance_test

import (
	"context"

	"github.com/distlock/locker/driver"
)

// fullDriver is a driver that can do everything, in this process or in another one.
type fullDriver interface {
	driver.Driver
	driver.Notifier
	driver.HoldCounter
	driver.Configurer
}

// nearby is a sound driver with some methods replaced whose fault is not in the store
// but in the process that locks.
type nearby struct {
	fullDriver
	renew     func(d fullDriver, ctx context.Context, claims []driver.Claim, answer func(int, error))
	release   func(d fullDriver, ctx context.Context, c driver.Claim) error
	acquire   func(d fullDriver, ctx context.Context, req driver.Request) (driver.Answer, error)
	watch     func(d fullDriver, ctx context.Context, key string) (driver.Watch, error)
	configure func(d fullDriver, c driver.Config) (driver.Settings, error)
	close     func(d fullDriver) error
}

func (d nearby) Acquire(ctx context.Context, req driver.Request) (driver.Answer, error) {
	if d.acquire != nil {
		return d.acquire(d.fullDriver, ctx, req)
	}
	return d.fullDriver.Acquire(ctx, req)
}

func (d nearby) Renew(ctx context.Context, claims []driver.Claim, answer func(int, error)) {
	if d.renew != nil {
		d.renew(d.fullDriver, ctx, claims, answer)
		return
	}
	d.fullDriver.Renew(ctx, claims, answer)
}

func (d nearby) Release(ctx context.Context, c driver.Claim) error {
	if d.release != nil {
		return d.release(d.fullDriver, ctx, c)
	}
	return d.fullDriver.Release(ctx, c)
}

func (d nearby) Watch(ctx context.Context, key string) (driver.Watch, error) {
	if d.watch != nil {
		return d.watch(d.fullDriver, ctx, key)
	}
	return d.fullDriver.Watch(ctx, key)
}

func (d nearby) Configure(c driver.Config) (driver.Settings, error) {
	if d.configure != nil {
		return d.configure(d.fullDriver, c)
	}
	return d.fullDriver.Configure(c)
}

func (d nearby) Close() error {
	if d.close != nil {
		return d.close(d.fullDriver)
	}
	return d.fullDriver.Close()
}

// near makes a driver of the counting one, changed by f. f is called once for each
// Locker.
func near(f func(d *nearby)) fake {
	v := fakeCounting
	v.near = func(sound fullDriver) driver.Driver {
		d := nearby{fullDriver: sound}
		f(&d)
		return d
	}
	return v
}

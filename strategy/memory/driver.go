package memory

import (
	"context"
	"fmt"
	"iter"

	"github.com/distlock/locker/driver"
)

var _ interface {
	driver.Driver
	driver.Configurer
	driver.Notifier
	driver.Inspector
	driver.Signaller
	driver.LossDetector
	driver.PermitKeeper
	driver.PermitInspector
} = storeDriver{}

type storeDriver struct{ s *Store }

func (storeDriver) Name() string { return "memory" }

// Configure implements [driver.Configurer].
func (d storeDriver) Configure(cfg driver.Config) (driver.Settings, error) {
	for _, o := range cfg.Options {
		return driver.Settings{}, fmt.Errorf("locker: %w: %s takes no driver options, but was given %T", driver.ErrInvalid, d.Name(), o)
	}
	return driver.Settings{NamesHolders: true}, nil
}

// do runs a command on the table. Nothing there blocks, so that a caller who is gone
// already is refused by asking once.
func (d storeDriver) do(ctx context.Context, command func() error) error {
	if err := ctx.Err(); err != nil {
		return &driver.StoreError{Err: err, NotApplied: true}
	}
	d.s.t.Mu.Lock()
	defer d.s.t.Mu.Unlock()
	return command()
}

// Acquire implements [driver.Driver].
func (d storeDriver) Acquire(ctx context.Context, req driver.Request) (a driver.Answer, err error) {
	err = d.do(ctx, func() error {
		d.s.tidy()
		a = d.s.t.Acquire(req)
		return nil
	})
	return a, err
}

// Renew implements [driver.Driver].
func (d storeDriver) Renew(ctx context.Context, claims []driver.Claim, answer func(i int, err error)) {
	// answer is not called under the mutex: it may come back to the store.
	for i, c := range claims {
		answer(i, d.do(ctx, func() error { return d.s.t.Renew(c) }))
	}
}

// Release implements [driver.Driver].
func (d storeDriver) Release(ctx context.Context, c driver.Claim) error {
	return d.do(ctx, func() error {
		defer d.s.tidy()
		return d.s.t.Release(c)
	})
}

func (storeDriver) Close() error { return nil }

// Watch implements [driver.Notifier].
func (d storeDriver) Watch(ctx context.Context, key string) (w driver.Watch, err error) {
	err = d.do(ctx, func() error {
		w = d.s.t.Watch(key, nil)
		return nil
	})
	return w, err
}

// Inspect implements [driver.Inspector].
func (d storeDriver) Inspect(ctx context.Context, key string) (h driver.Holder, err error) {
	err = d.do(ctx, func() error {
		if h = d.s.t.Inspect(key); h.Held {
			h.Strategy, h.Holds = d.Name(), 0 // it counts none
		}
		return nil
	})
	return h, err
}

// Keys implements [driver.Inspector].
func (d storeDriver) Keys(ctx context.Context, pattern string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		var keys []string
		err := d.do(ctx, func() (err error) {
			keys, err = d.s.t.Matching(pattern)
			return err
		})
		if err != nil {
			yield("", err)
			return
		}
		for _, key := range keys {
			if err := ctx.Err(); !yield(key, err) || err != nil {
				return
			}
		}
	}
}

// Break implements [driver.Inspector].
func (d storeDriver) Break(ctx context.Context, h driver.Holder) error {
	err := d.do(ctx, func() error { return d.s.t.Break(h) })
	if err == nil {
		d.s.listeners.changed(h.Key)
	}
	return err
}

// Permits implements [driver.PermitKeeper].
func (d storeDriver) Permits(ctx context.Context, key string) (out, limit int, err error) {
	err = d.do(ctx, func() (err error) {
		out, limit, err = d.s.t.Permits(key)
		return err
	})
	return out, limit, err
}

// PermitClaims implements [driver.PermitInspector].
func (d storeDriver) PermitClaims(ctx context.Context, key string) iter.Seq2[driver.Holder, error] {
	return func(yield func(driver.Holder, error) bool) {
		var all []driver.Holder
		err := d.do(ctx, func() error {
			all = d.s.t.PermitClaims(key)
			return nil
		})
		if err != nil {
			yield(driver.Holder{}, err)
			return
		}
		for _, h := range all {
			if h.Strategy = d.Name(); !yield(h, nil) {
				return
			}
		}
	}
}

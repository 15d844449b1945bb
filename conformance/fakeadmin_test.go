package conformance_test

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/driver"
)

// Inspect implements [driver.Inspector].
func (d *fakeDriver) Inspect(ctx context.Context, key string) (h driver.Holder, err error) {
	h.Key = key
	cerr := d.s.command(ctx, opInspect, func() {
		switch d.s.foreign[key] {
		case "lock":
			h.Held = true
			return
		case "thing":
			err = locker.ErrConflict
			return
		}
		h = d.s.Table.Inspect(key)
		h.Since = time.Time{} // it does not know
	})
	return h, errors.Join(err, cerr)
}

// Keys implements [driver.Inspector].
func (d *fakeDriver) Keys(ctx context.Context, pattern string) iter.Seq2[string, error] {
	var keys []string
	err := d.s.obey(ctx, opInspect, func() (err error) {
		keys, err = d.s.Matching(pattern)
		return err
	})
	return func(yield func(string, error) bool) {
		if err != nil {
			yield("", err)
		}
		for _, key := range keys {
			if !yield(key, nil) {
				return
			}
		}
	}
}

// Break implements [driver.Inspector].
func (d *fakeDriver) Break(ctx context.Context, h driver.Holder) error {
	err := d.s.obey(ctx, opInspect, func() error { return d.s.Table.Break(h) })
	if err == nil {
		d.s.changed(h.Key)
	}
	return err
}

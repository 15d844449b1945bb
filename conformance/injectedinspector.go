package conformance

import (
	"context"
	"errors"
	"iter"

	"github.com/distlock/locker/driver"
)

// opInspect is for all commands of a [driver.Inspector]: they suffer from outages only.
const opInspect Op = "inspect"

func (d injected) inspector(ctx context.Context, f func(ctx context.Context, i driver.Inspector) error) error {
	i, ok := d.inner.(driver.Inspector)
	if !ok {
		return errors.ErrUnsupported
	}
	return d.in.Command(ctx, opInspect, func(ctx context.Context) error { return f(ctx, i) })
}

func (d injected) Inspect(ctx context.Context, key string) (h driver.Holder, err error) {
	err = d.inspector(ctx, func(ctx context.Context, i driver.Inspector) (err error) {
		h, err = i.Inspect(ctx, key)
		return err
	})
	return h, err
}

func (d injected) Ask(ctx context.Context, key string) (h driver.Holder, asked bool, err error) {
	a, ok := d.inner.(driver.Asker)
	if !ok {
		return h, false, errors.ErrUnsupported
	}
	err = d.in.Command(ctx, opInspect, func(ctx context.Context) (err error) {
		h, asked, err = a.Ask(ctx, key)
		return err
	})
	return h, asked, err
}

func (d injected) Keys(ctx context.Context, pattern string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		err := d.inspector(ctx, func(ctx context.Context, i driver.Inspector) error {
			i.Keys(ctx, pattern)(yield)
			return nil
		})
		if err != nil {
			yield("", err)
		}
	}
}

func (d injected) Break(ctx context.Context, h driver.Holder) error {
	return d.inspector(ctx, func(ctx context.Context, i driver.Inspector) error { return i.Break(ctx, h) })
}

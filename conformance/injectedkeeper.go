package conformance

import (
	"context"
	"errors"
	"iter"

	"github.com/distlock/locker/driver"
)

// OpPermits is for the commands of a [driver.PermitKeeper] beside Acquire, Renew and Release.
const OpPermits Op = "permits"

// injectedKeeper is an injected driver that keeps permits.
type injectedKeeper struct {
	injected
	keeper driver.PermitKeeper
}

// wrapKeeper is Wrap for a driver that keeps permits. n and c are nil if it is none.
func (in *Injector) wrapKeeper(k injectedKeeper, n driver.Notifier, c driver.HoldCounter) driver.Driver {
	switch {
	case n != nil && c != nil:
		return struct {
			injectedKeeper
			injectedNotifier
			injectedCounter
		}{k, injectedNotifier{n, in}, injectedCounter{c, in}}
	case n != nil:
		return struct {
			injectedKeeper
			injectedNotifier
		}{k, injectedNotifier{n, in}}
	case c != nil:
		return struct {
			injectedKeeper
			injectedCounter
		}{k, injectedCounter{c, in}}
	}
	return k
}

// Permits implements [driver.PermitKeeper].
func (d injectedKeeper) Permits(ctx context.Context, key string) (out, limit int, err error) {
	err = d.in.Command(ctx, OpPermits, func(ctx context.Context) (err error) {
		out, limit, err = d.keeper.Permits(ctx, key)
		return err
	})
	return out, limit, err
}

// PermitClaims implements [driver.PermitInspector].
func (d injectedKeeper) PermitClaims(ctx context.Context, key string) iter.Seq2[driver.Holder, error] {
	return func(yield func(driver.Holder, error) bool) {
		i, ok := d.inner.(driver.PermitInspector)
		if !ok {
			yield(driver.Holder{}, errors.ErrUnsupported)
			return
		}
		err := d.in.Command(ctx, OpPermits, func(ctx context.Context) error {
			i.PermitClaims(ctx, key)(yield)
			return nil
		})
		if err != nil {
			yield(driver.Holder{}, err)
		}
	}
}

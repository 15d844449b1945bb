package otellocker_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/driver"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
)

// everything has each kind of event happen, and each outcome and cause that dashboards and
// alerts may ask for. It ends with the Locker closed.
func everything(t *testing.T, ctx context.Context, b *bench, key string) {
	t.Helper()
	held := b.lock(ctx, key)
	_, err := b.TryLock(ctx, key)
	require.ErrorIs(t, err, locker.ErrNotAcquired)
	taken := make(chan *locker.Lease)
	go func() {
		next, _ := b.Lock(ctx, key)
		taken <- next
	}()
	synctest.Wait()
	require.NoError(t, held.Unlock(ctx)) // a hand-over
	held = <-taken

	for _, wait := range []func() (context.Context, context.CancelFunc){
		func() (context.Context, context.CancelFunc) { return context.WithTimeout(ctx, time.Millisecond) },
		func() (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(ctx)
			time.AfterFunc(time.Millisecond, cancel)
			return ctx, cancel
		},
	} {
		ctx, cancel := wait()
		_, err := b.Lock(ctx, key)
		require.ErrorIs(t, err, locker.ErrNotAcquired)
		cancel()
	}
	require.NoError(t, held.Renew(ctx))
	client, _ := locker.ClientOf(b.Locker)
	require.NoError(t, client.RequestRelease(ctx, key))
	require.NoError(t, held.Unlock(ctx))

	for _, trouble := range []error{errRefused, driver.ErrConflict, driver.ErrInvalid} {
		b.driver.set(func() { b.driver.acquire = trouble })
		_, err := b.TryLock(ctx, key)
		require.ErrorContains(t, err, key)
	}
	b.driver.set(func() { b.driver.acquire = nil })
	everyLoss(t, ctx, b, key)
	b.driver.changed("h1:6379", errRefused)
	b.driver.changed("h2:6379", errRefused)
	b.driver.changed("h2:6379", nil)

	b.lock(ctx, key)
	require.NoError(t, b.Close())
	_, err = b.Lock(ctx, key)
	require.ErrorIs(t, err, locker.ErrClosed)

	b.observe(b.obs) // what a Locker reports of nodes ends with it
	b.driver.changed("h1:6379", nil)
	b.driver.changed("h2:6379", nil)
}

func everyLoss(t *testing.T, ctx context.Context, b *bench, key string) {
	t.Helper()
	for _, opt := range []locker.LockOption{locker.WithMaxHold(time.Second), locker.WithMaxRenewals(1), locker.WithoutRenewal()} {
		lease := b.lock(ctx, key, opt)
		time.Sleep(3 * time.Second) // on the bubble's clock: past the limit
		_, err := b.Lock(lease.Context(ctx), key)
		require.ErrorIs(t, err, locker.ErrLost)
		require.ErrorIs(t, lease.Unlock(ctx), locker.ErrLost)
	}
	lease := b.lock(ctx, key)
	b.driver.set(func() { b.driver.renew = errRefused })
	time.Sleep(1500 * time.Millisecond) // on the bubble's clock: a renewal fails
	b.driver.set(func() { b.driver.renew = nil })
	b.store.Break(key)
	time.Sleep(1500 * time.Millisecond) // on the bubble's clock: a renewal finds it
	require.ErrorIs(t, lease.Unlock(ctx), locker.ErrLost)
	require.NoError(t, b.lock(ctx, key).LetExpire())
	time.Sleep(4 * time.Second) // on the bubble's clock: past the TTL
	lease = b.lock(ctx, key)
	b.driver.set(func() { b.driver.release = &driver.StoreError{Err: errRefused, Permanent: true} })
	require.ErrorIs(t, lease.Unlock(ctx), locker.ErrUnavailable)
	b.driver.set(func() { b.driver.release = nil })
	require.NoError(t, lease.Unlock(ctx))
}

// setsOf are the attributes of the points of a metric.
func setsOf(data metricdata.Aggregation) []attribute.Set {
	var sets []attribute.Set
	switch d := data.(type) {
	case metricdata.Sum[int64]:
		for _, p := range d.DataPoints {
			sets = append(sets, p.Attributes)
		}
	case metricdata.Gauge[int64]:
		for _, p := range d.DataPoints {
			sets = append(sets, p.Attributes)
		}
	case metricdata.Histogram[float64]:
		for _, p := range d.DataPoints {
			sets = append(sets, p.Attributes)
		}
	}
	return sets
}

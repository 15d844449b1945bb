package otellocker_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/distlock/locker"
	"github.com/distlock/locker/otellocker"
	"github.com/distlock/locker/strategy/memory"
	"github.com/stretchr/testify/require"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
)

// Names are counted, however many they are.
func TestManyKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, otellocker.WithKeys(func(key string) string { return key }))
		const keys = 1500 // more than are remembered
		for range 2 {
			for i := range keys {
				require.NoError(t, b.lock(t.Context(), fmt.Sprint(i)).Unlock(t.Context()))
				synctest.Wait() // none is dropped
			}
		}
		points := b.collected("locker.hold.duration").Data.(metricdata.Histogram[float64]).DataPoints
		require.Len(t, points, keys)
		for _, p := range points {
			require.EqualValues(t, 2, p.Count)
		}
	})
}

// One observer serves several Lockers at once.
func TestSharedObserver(t *testing.T) {
	reader, _, tracers := telemetry()
	meters := sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))
	obs, err := otellocker.NewObserver(otellocker.WithMeterProvider(meters), otellocker.WithTracerProvider(tracers),
		otellocker.WithKeys(func(key string) string { return key }))
	require.NoError(t, err)
	ctx, _ := tracers.Tracer("caller").Start(t.Context(), "request")
	const lockers, pairs = 8, 100
	var wg sync.WaitGroup
	for range lockers {
		wg.Go(func() {
			var told sync.WaitGroup
			told.Add(pairs)
			l, err := memory.New(locker.WithObserver(around{obs.(locker.StatsObserver), func(o locker.Observer) locker.Observer {
				return locker.ObserverFunc(func(ctx context.Context, e locker.Event) {
					o.Observe(ctx, e)
					if e.Kind == locker.EventReleased {
						told.Done()
					}
				})
			}}))
			if err != nil {
				t.Error(err)
				return
			}
			for i := range pairs {
				err := locker.Do(ctx, l, fmt.Sprint(i), func(context.Context) error { return nil })
				if err != nil {
					t.Error(err)
				}
			}
			told.Wait() // for longer than Close, if need be
			_ = l.Close()
		})
	}
	wg.Wait()
	holds := uint64(0)
	for _, p := range collect(t, reader)["locker.hold.duration"].Data.(metricdata.Histogram[float64]).DataPoints {
		holds += p.Count
	}
	require.EqualValues(t, lockers*pairs, holds)
}

// A key is shown only by the name that the user gives it.
func TestKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, otellocker.WithKeys(func(key string) string {
			if key == "private" {
				return ""
			}
			return key[:6]
		}))
		b.driver.changed("h1:6379", errRefused) // which is of no key
		for _, key := range []string{"orders/1", "orders/2", "stocks/1", "private"} {
			b.lock(t.Context(), key)
		}
		zeros := slices.Concat(failures(), failures("locker.key", "orders"), failures("locker.key", "stocks"))
		b.want("locker.acquisitions", "{acquisition}", withZeros(zeros,
			point(2, attrs("locker.outcome", "acquired", "locker.key", "orders")),
			point(1, attrs("locker.outcome", "acquired", "locker.key", "stocks")),
			point(1, attrs("locker.outcome", "acquired"))))
		b.want("locker.lease.held", "{lease}", level(point(4, attrs())))
		b.want("locker.node.failures", "{failure}", counts(point(1, node("memory", "h1", 6379))))
	})
}

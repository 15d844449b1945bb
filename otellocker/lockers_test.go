package otellocker_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/otellocker"
	"github.com/distlock/locker/strategy/memory"
	"github.com/stretchr/testify/require"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
)

// How many locks are held is right whatever was dropped: while renewals of thousands are due, and
// after Close, which drops what it cannot deliver.
func TestHeldIsRightWhateverIsDropped(t *testing.T) {
	for name, blocked := range map[string]bool{"quick": false, "blocked": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				proceed := make(chan struct{})
				if !blocked {
					close(proceed)
				}
				b := newBenchOn(t, func(o locker.Observer) locker.Observer {
					return locker.ObserverFunc(func(ctx context.Context, e locker.Event) {
						<-proceed
						o.Observe(ctx, e)
					})
				})
				held := func(n int64) {
					t.Helper()
					b.want("locker.lease.held", "{lease}", level(point(n, attrs())))
				}
				const n = 10000
				for i := range n {
					b.lock(t.Context(), fmt.Sprint(i))
				}
				held(n)
				for range 3 {
					time.Sleep(time.Second) // on the bubble's clock: all renewals are due
					require.NoError(t, b.lock(t.Context(), "x").Unlock(t.Context()))
					held(n)
				}
				require.NoError(t, b.Close())
				held(0)
				if blocked {
					got := b.collected("locker.event.dropped").Data.(metricdata.Sum[int64]).DataPoints
					require.Len(t, got, 1)
					require.GreaterOrEqual(t, got[0].Value, int64(4*n), "each was acquired, renewed three times and lost")
					close(proceed)
				}
			})
		})
	}
}

// A loss is on the span of the caller that holds, also where another Locker with the same observer
// holds a lock of that name, and no token distinguishes the two.
func TestLossOfOneOfTwoLockers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reader, spans, tracers := telemetry()
		obs, err := otellocker.NewObserver(otellocker.WithTracerProvider(tracers),
			otellocker.WithMeterProvider(sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))))
		require.NoError(t, err)
		for _, opts := range [][]locker.LockOption{{locker.WithMaxHold(time.Second)}, nil} {
			l, err := memory.New(locker.WithObserver(obs), locker.WithoutFencing(), locker.WithTTL(3*time.Second))
			require.NoError(t, err)
			defer l.Close()
			ctx, caller := tracers.Tracer("the caller's").Start(t.Context(), fmt.Sprint("limited: ", len(opts)))
			defer caller.End()
			_, err = l.Lock(ctx, "k", opts...)
			require.NoError(t, err)
		}
		time.Sleep(2 * time.Second) // on the bubble's clock
		synctest.Wait()
		for _, s := range spans.Started() {
			if s.Name() == "limited: 1" {
				require.Len(t, s.Events(), 1)
			}
			if s.Name() == "limited: 0" {
				require.Empty(t, s.Events(), "its lock is held")
			}
		}
	})
}

// The instrumentation scope has a version and a schema.
func TestScope(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		ctx, caller := b.caller()
		b.lock(ctx, "k")
		caller.End()
		scope := b.named("locker.acquire")[0].InstrumentationScope()
		var all metricdata.ResourceMetrics
		require.NoError(t, b.metrics.Collect(t.Context(), &all))
		require.Equal(t, scope, all.ScopeMetrics[0].Scope)
		require.NotEmpty(t, scope.Version)
		require.Contains(t, scope.SchemaURL, "https://opentelemetry.io/schemas/")
	})
}

package otellocker_test

import (
	"context"
	"testing"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/otellocker"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/metric"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

var acquiredAndReleased = [...]locker.Event{
	{Kind: locker.EventAcquired, Strategy: "memory", Key: "orders/42", Token: 1, Duration: time.Millisecond},
	{Kind: locker.EventReleased, Strategy: "memory", Key: "orders/42", Token: 1, Duration: time.Millisecond},
}

func observer(tb testing.TB, mp metric.MeterProvider, opts ...otellocker.Option) locker.Observer {
	tb.Helper()
	obs, err := otellocker.NewObserver(append(opts, otellocker.WithMeterProvider(mp))...)
	require.NoError(tb, err)
	return obs
}

func sdk() metric.MeterProvider {
	return sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewManualReader()))
}

func orders(string) string { return "orders" }

// Metrics allocate nothing, with and without names of keys.
func TestMetricsAllocateNothing(t *testing.T) {
	for name, opts := range map[string][]otellocker.Option{"no keys": nil, "keys": {otellocker.WithKeys(orders)}} {
		obs := observer(t, sdk(), opts...)
		e := acquiredAndReleased
		if got := testing.AllocsPerRun(100, func() {
			obs.Observe(t.Context(), e[0])
			obs.Observe(t.Context(), e[1])
		}); got != 0 {
			t.Errorf("%s: %v allocations for a lock and its release, want none", name, got)
		}
	}
}

// One operation is the two events of a lock and its release.
func BenchmarkObserve(b *testing.B) {
	tracers := sdktrace.NewTracerProvider()
	sampled, _ := tracers.Tracer("caller").Start(context.Background(), "request")
	for _, c := range []struct {
		name string
		ctx  context.Context
		obs  locker.Observer
	}{
		{"no SDK", context.Background(), observer(b, metricnoop.NewMeterProvider())},
		{"metrics", context.Background(), observer(b, sdk())},
		{"metrics and keys", context.Background(), observer(b, sdk(), otellocker.WithKeys(orders))},
		{"metrics and a span", sampled, observer(b, sdk(), otellocker.WithTracerProvider(tracers))},
		{"a span", sampled, observer(b, metricnoop.NewMeterProvider(), otellocker.WithTracerProvider(tracers))},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				c.obs.Observe(c.ctx, acquiredAndReleased[0])
				c.obs.Observe(c.ctx, acquiredAndReleased[1])
			}
		})
	}
}

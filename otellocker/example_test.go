package otellocker_test

import (
	"context"
	"fmt"
	"log"

	"github.com/distlock/locker"
	"github.com/distlock/locker/otellocker"
	"github.com/distlock/locker/strategy/memory"
	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
)

// Observe a Locker, and print what its metrics count. A service has an exporter instead of the
// reader, and leaves the provider to otel.SetMeterProvider.
func Example() {
	ctx := context.Background()
	reader := sdkmetric.NewManualReader()
	obs, err := otellocker.NewObserver(
		otellocker.WithMeterProvider(sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))),
	)
	if err != nil {
		log.Fatal(err)
	}
	l, err := memory.New(locker.WithObserver(obs))
	if err != nil {
		log.Fatal(err)
	}
	_ = locker.Do(ctx, l, "orders/42", func(context.Context) error {
		_, err := l.TryLock(ctx, "orders/42") // refused: it is held
		return err
	})
	_ = l.Close() // which delivers what is left

	var all metricdata.ResourceMetrics
	_ = reader.Collect(ctx, &all)
	for _, m := range all.ScopeMetrics[0].Metrics {
		switch data := m.Data.(type) {
		case metricdata.Sum[int64]:
			for _, p := range data.DataPoints {
				if p.Value != 0 {
					fmt.Println(m.Name, p.Attributes.Encoded(attribute.DefaultEncoder()), p.Value)
				}
			}
		case metricdata.Histogram[float64]:
			for _, p := range data.DataPoints {
				fmt.Println(m.Name, p.Attributes.Encoded(attribute.DefaultEncoder()), "of", p.Count)
			}
		}
	}
	// Unordered output:
	// locker.acquisitions locker.outcome=acquired,locker.strategy=memory 1
	// locker.acquisitions locker.outcome=not_acquired,locker.strategy=memory 1
	// locker.acquire.duration locker.outcome=acquired,locker.strategy=memory of 1
	// locker.acquire.duration locker.outcome=not_acquired,locker.strategy=memory of 1
	// locker.hold.duration locker.outcome=released,locker.strategy=memory of 1
	// locker.releases locker.outcome=released,locker.strategy=memory 1
}

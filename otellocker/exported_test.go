package otellocker_test

import (
	"encoding/json"
	"flag"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/distlock/locker/otellocker"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/require"
	otelprometheus "go.opentelemetry.io/otel/exporters/prometheus"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
)

var update = flag.Bool("update", false, "write testdata/exported.json")

// exported has the labels of each exported metric, and their values.
type exported map[string]map[string][]string

// scraped has everything happen, and exports it.
func scraped(t *testing.T) exported {
	t.Helper()
	all := make(exported)
	synctest.Test(t, func(t *testing.T) {
		registry := prometheus.NewRegistry()
		exporter, err := otelprometheus.New(otelprometheus.WithRegisterer(registry))
		require.NoError(t, err)
		b := newBench(t, otellocker.WithMeterProvider(sdkmetric.NewMeterProvider(sdkmetric.WithReader(exporter))))
		everything(t, t.Context(), b, "k")
		synctest.Wait()
		families, err := registry.Gather()
		require.NoError(t, err)
		for _, f := range families {
			names := []string{f.GetName()}
			if f.GetType() == dto.MetricType_HISTOGRAM {
				names = []string{f.GetName() + "_bucket", f.GetName() + "_sum", f.GetName() + "_count"}
			}
			for _, name := range names {
				all.add(name, f.GetMetric())
			}
		}
	})
	return all
}

func (x exported) add(name string, ms []*dto.Metric) {
	// Prometheus adds these to a target's metrics.
	x[name] = map[string][]string{"job": nil, "instance": nil}
	if strings.HasSuffix(name, "_bucket") {
		x[name]["le"] = nil
	}
	for _, m := range ms {
		for _, l := range m.GetLabel() {
			if values := x[name][l.GetName()]; l.GetName() != "le" && !slices.Contains(values, l.GetValue()) {
				x[name][l.GetName()] = append(values, l.GetValue())
			}
		}
	}
}

// TestExported: testdata/exported.json has the exported metrics. The dashboard and the
// alerts are checked against it, in a module of their own, as Prometheus's parsers are large.
func TestExported(t *testing.T) {
	const file = "testdata/exported.json"
	x := scraped(t)
	for _, labels := range x {
		for _, values := range labels {
			slices.Sort(values)
		}
	}
	now, err := json.MarshalIndent(x, "", "\t")
	require.NoError(t, err)
	if *update {
		require.NoError(t, os.WriteFile(file, append(now, '\n'), 0o644))
	}
	noted, err := os.ReadFile(file)
	require.NoError(t, err)
	require.JSONEq(t, string(noted), string(now), "go test -run TestExported -update, and look at the dashboard and the alerts")
}

// The README's table has every metric, with its type and unit.
func TestReadme(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	require.NoError(t, err)
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		everything(t, t.Context(), b, "k")
		synctest.Wait()
		for name, m := range collect(t, b.metrics) {
			kind := "counter"
			switch d := m.Data.(type) {
			case metricdata.Histogram[float64]:
				kind = "histogram"
			case metricdata.Gauge[int64]:
				kind = "gauge"
			case metricdata.Sum[int64]:
				if !d.IsMonotonic {
					kind = "up-down counter"
				}
			}
			require.Contains(t, string(readme), "| `"+name+"` | "+kind+" | `"+m.Unit+"` |")
		}
	})
}

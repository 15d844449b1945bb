package otellocker_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/driver"
	"github.com/distlock/locker/otellocker"
	"github.com/distlock/locker/strategy/memory"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/metric/metricdata/metricdatatest"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
)

// bench is a Locker on a memory store that can be made to fail, observed. It is used inside a
// synctest bubble: time is the bubble's, and durations are exact.
type bench struct {
	locker.Locker
	t       *testing.T
	store   *memory.Store
	driver  *faulty
	obs     locker.Observer
	metrics *sdkmetric.ManualReader
	spans   *tracetest.SpanRecorder
	tracers *sdktrace.TracerProvider
}

// telemetry returns the targets of a bench's observer, unless a test has its own.
func telemetry() (*sdkmetric.ManualReader, *tracetest.SpanRecorder, *sdktrace.TracerProvider) {
	spans := tracetest.NewSpanRecorder()
	return sdkmetric.NewManualReader(), spans, sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))
}

func newBench(t *testing.T, opts ...otellocker.Option) *bench {
	t.Helper()
	return newBenchOn(t, func(o locker.Observer) locker.Observer { return o }, opts...)
}

// around is an observer with something around that of each Locker.
type around struct {
	locker.StatsObserver
	wrap func(locker.Observer) locker.Observer
}

func (a around) ObserveLocker(strategy string, stats func() locker.Stats) (locker.Observer, func()) {
	each, closed := a.StatsObserver.ObserveLocker(strategy, stats)
	return a.wrap(each), closed
}

// newBenchOn has wrap between the Locker and the observer.
func newBenchOn(t *testing.T, wrap func(locker.Observer) locker.Observer, opts ...otellocker.Option) *bench {
	t.Helper()
	b := &bench{t: t, store: memory.NewStore()}
	b.metrics, b.spans, b.tracers = telemetry()
	meters := sdkmetric.NewMeterProvider(sdkmetric.WithReader(b.metrics))
	obs, err := otellocker.NewObserver(append([]otellocker.Option{
		otellocker.WithMeterProvider(meters), otellocker.WithTracerProvider(b.tracers),
	}, opts...)...)
	require.NoError(t, err)
	b.obs = around{obs.(locker.StatsObserver), wrap}
	b.observe(b.obs)
	return b
}

func (b *bench) observe(obs locker.Observer) {
	b.driver = newFaulty(b.store)
	l, err := locker.New(b.driver, locker.WithObserver(obs), locker.WithoutFencing(), locker.WithTTL(3*time.Second))
	require.NoError(b.t, err)
	b.Locker = l
	b.t.Cleanup(func() { _ = l.Close() })
}

func (b *bench) lock(ctx context.Context, key string, opts ...locker.LockOption) *locker.Lease {
	b.t.Helper()
	l, err := b.Lock(ctx, key, opts...)
	require.NoError(b.t, err)
	return l
}

// collected waits until all events are delivered, and reads the metric of that name.
func (b *bench) collected(name string) metricdata.Metrics {
	b.t.Helper()
	synctest.Wait()
	return collect(b.t, b.metrics)[name]
}

func collect(t *testing.T, r sdkmetric.Reader) map[string]metricdata.Metrics {
	t.Helper()
	var all metricdata.ResourceMetrics
	require.NoError(t, r.Collect(context.Background(), &all))
	byName := make(map[string]metricdata.Metrics)
	for _, s := range all.ScopeMetrics {
		for _, m := range s.Metrics {
			byName[m.Name] = m
		}
	}
	return byName
}

// want checks all of a metric but its description.
func (b *bench) want(name, unit string, data metricdata.Aggregation) {
	b.t.Helper()
	got := b.collected(name)
	require.NotEmpty(b.t, got.Description, "%s is described", name)
	got.Description = ""
	metricdatatest.AssertEqual(b.t, metricdata.Metrics{Name: name, Unit: unit, Data: data}, got,
		metricdatatest.IgnoreTimestamp(), metricdatatest.IgnoreExemplars())
}

// attrs is a set, of the strategy and pairs of a name and a value.
func attrs(pairs ...string) attribute.Set {
	kvs := []attribute.KeyValue{attribute.String("locker.strategy", "memory")}
	for i := 0; i < len(pairs); i += 2 {
		kvs = append(kvs, attribute.String(pairs[i], pairs[i+1]))
	}
	return attribute.NewSet(kvs...)
}

func point(n int64, set attribute.Set) metricdata.DataPoint[int64] {
	return metricdata.DataPoint[int64]{Attributes: set, Value: n}
}

func counts(points ...metricdata.DataPoint[int64]) metricdata.Sum[int64] {
	return metricdata.Sum[int64]{DataPoints: points, Temporality: metricdata.CumulativeTemporality, IsMonotonic: true}
}

// withZeros adds, for each set that none of points has, one of 0: failures are announced.
func withZeros(sets []attribute.Set, points ...metricdata.DataPoint[int64]) metricdata.Sum[int64] {
	for _, set := range sets {
		if !slices.ContainsFunc(points, func(p metricdata.DataPoint[int64]) bool { return p.Attributes.Equals(&set) }) {
			points = append(points, point(0, set))
		}
	}
	return counts(points...)
}

// acquisitions are points, and the zeros of the failures.
func acquisitions(points ...metricdata.DataPoint[int64]) metricdata.Sum[int64] {
	return withZeros(failures(), points...)
}

// failures are the sets of the outcomes that are failures; more are pairs that all have.
func failures(more ...string) (sets []attribute.Set) {
	for _, f := range []string{"unavailable", "lost", "conflict", "invalid", "closed"} {
		sets = append(sets, attrs(append(more, "locker.outcome", f, "error.type", f)...))
	}
	return sets
}

func losses(points ...metricdata.DataPoint[int64]) metricdata.Sum[int64] {
	var sets []attribute.Set
	for _, c := range []string{"denied", "expired", "max_hold", "max_renewals", "closed"} {
		sets = append(sets, attrs("locker.loss.cause", c))
	}
	return withZeros(sets, points...)
}

func level(points ...metricdata.DataPoint[int64]) metricdata.Sum[int64] {
	return metricdata.Sum[int64]{DataPoints: points, Temporality: metricdata.CumulativeTemporality}
}

var bounds = []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60}

func times(set attribute.Set, durations ...time.Duration) metricdata.HistogramDataPoint[float64] {
	p := metricdata.HistogramDataPoint[float64]{Attributes: set, Bounds: bounds, BucketCounts: make([]uint64, len(bounds)+1)}
	least, most := durations[0].Seconds(), durations[0].Seconds()
	for _, d := range durations {
		s := d.Seconds()
		least, most = min(least, s), max(most, s)
		p.Count, p.Sum = p.Count+1, p.Sum+s
		i := 0
		for i < len(bounds) && s > bounds[i] {
			i++
		}
		p.BucketCounts[i]++
	}
	p.Min, p.Max = metricdata.NewExtrema(least), metricdata.NewExtrema(most)
	return p
}

func histogram(points ...metricdata.HistogramDataPoint[float64]) metricdata.Histogram[float64] {
	return metricdata.Histogram[float64]{DataPoints: points, Temporality: metricdata.CumulativeTemporality}
}

// faulty is a driver on a memory store that fails, or takes its time, when told to.
type faulty struct {
	driver.Driver
	driver.Notifier
	driver.Inspector
	driver.Signaller
	changed func(node string, trouble error)

	mu                      sync.Mutex
	acquire, renew, release error
	slow                    time.Duration // each renewal
}

func newFaulty(s *memory.Store) *faulty {
	d := s.Driver()
	return &faulty{Driver: d, Notifier: d.(driver.Notifier), Inspector: d.(driver.Inspector), Signaller: d.(driver.Signaller)}
}

var errRefused = errors.New("connection refused")

func (f *faulty) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

func (f *faulty) failure(of *error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return *of
}

func (f *faulty) Configure(c driver.Config) (driver.Settings, error) {
	f.changed = c.NodeChanged
	return driver.Settings{}, nil
}

func (f *faulty) Acquire(ctx context.Context, r driver.Request) (driver.Answer, error) {
	if err := f.failure(&f.acquire); err != nil {
		return driver.Answer{}, err
	}
	return f.Driver.Acquire(ctx, r)
}

func (f *faulty) Renew(ctx context.Context, cs []driver.Claim, answer func(int, error)) {
	f.mu.Lock()
	slow, err := f.slow, f.renew
	f.mu.Unlock()
	time.Sleep(slow) // a slow store, on the bubble's clock
	if err == nil {
		f.Driver.Renew(ctx, cs, answer)
		return
	}
	for i := range cs {
		answer(i, err)
	}
}

func (f *faulty) Release(ctx context.Context, c driver.Claim) error {
	if err := f.failure(&f.release); err != nil {
		return err
	}
	return f.Driver.Release(ctx, c)
}

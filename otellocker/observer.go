// Package otellocker reports what a Locker does to OpenTelemetry: metrics of every event, and a
// span for each acquisition whose caller has a sampled span.
//
//	obs, err := otellocker.NewObserver()
//	l, err := hashreentrant.New(rdb, locker.WithObserver(obs))
//
// The metrics are locker.acquisitions, locker.acquire.duration, locker.waits, locker.hand_overs, locker.lease.held,
// locker.hold.duration, locker.releases, locker.renewals, locker.renew.duration, locker.lease.lost,
// locker.lease.at_risk, locker.release.requests, locker.node.up, locker.node.failures and locker.event.dropped. The
// README shows their attributes. A dashboard for Grafana and alerts for Prometheus are beside it.
//
// The Locker delivers events beside the calls, so neither metrics nor spans delay a lock. Close
// the Locker before the providers are shut down: Close delivers what is left.
package otellocker

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"

	"github.com/distlock/locker"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	semconv "go.opentelemetry.io/otel/semconv/v1.37.0"
	"go.opentelemetry.io/otel/trace"
)

// scope names the instrumentation.
const scope = "github.com/distlock/locker/otellocker"

// Option configures NewObserver.
type Option interface {
	apply(*config)
}

type config struct {
	meters  metric.MeterProvider
	tracers trace.TracerProvider
	keys    func(string) string
	err     error // the first bad argument
}

type option func(*config)

func (o option) apply(c *config) { o(c) }

func (c *config) refuse(format string, args ...any) {
	if c.err == nil {
		c.err = invalid(format, args...)
	}
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("otellocker: %w: %s", locker.ErrInvalid, fmt.Sprintf(format, args...))
}

// WithMeterProvider makes the instruments with mp; for no metrics give it the provider of
// package metric/noop. Default [otel.GetMeterProvider].
func WithMeterProvider(mp metric.MeterProvider) Option {
	return option(func(c *config) {
		if mp == nil {
			c.refuse("WithMeterProvider(nil): leave it out for the global one")
		}
		c.meters = mp
	})
}

// WithTracerProvider makes the spans with tp; for no spans give it the provider of package
// trace/noop. Default [otel.GetTracerProvider].
func WithTracerProvider(tp trace.TracerProvider) Option {
	return option(func(c *config) {
		if tp == nil {
			c.refuse("WithTracerProvider(nil): leave it out for the global one")
		}
		c.tracers = tp
	})
}

// WithKeys adds the attribute locker.key to metrics and spans, with the name that f gives to a
// key, such as "orders" for "orders/42"; where f returns "", there is none. Every name is a
// time series of its own, so f returns few different ones. It returns the same name for the
// same key each time, does not block and does not call the Locker. Default none: a key may be
// one of millions, and may be private.
func WithKeys(f func(key string) string) Option {
	return option(func(c *config) {
		if f == nil {
			c.refuse("WithKeys(nil): leave it out for no keys")
		}
		c.keys = f
	})
}

// NewObserver makes an Observer for [locker.WithObserver]. It may be given to several Lockers.
// Give it as it is: it is a [locker.StatsObserver]. An observer of your own around it that is no
// StatsObserver hides how many locks are held and how many events were dropped. A wrong option is
// an error that matches [locker.ErrInvalid].
func NewObserver(opts ...Option) (locker.Observer, error) {
	var c config
	for _, o := range opts {
		if o == nil {
			return nil, invalid("an option is nil")
		}
		o.apply(&c)
	}
	if c.err != nil {
		return nil, c.err
	}
	if c.meters == nil {
		c.meters = otel.GetMeterProvider()
	}
	if c.tracers == nil {
		c.tracers = otel.GetTracerProvider()
	}
	meter := c.meters.Meter(scope, metric.WithInstrumentationVersion(version()), metric.WithSchemaURL(semconv.SchemaURL))
	in, err := newInstruments(meter)
	if err != nil {
		return nil, fmt.Errorf("otellocker: %w", err)
	}
	o := &observer{
		keys:        c.keys,
		instruments: in,
		tracer:      c.tracers.Tracer(scope, trace.WithInstrumentationVersion(version()), trace.WithSchemaURL(semconv.SchemaURL)),
		all:         make(map[seriesID]*series),
	}
	o.spans, o.reports = newSpans(o.tracer), o.nodes.add()
	if err := errors.Join(o.levels.register(meter), o.nodes.register(meter)); err != nil {
		return nil, fmt.Errorf("otellocker: %w", err)
	}
	return o, nil
}

// version returns the version of this module in the program; "(devel)" where it is not known.
var version = sync.OnceValue(func() string {
	info, ok := debug.ReadBuildInfo()
	if ok {
		for _, m := range append(info.Deps, &info.Main) {
			if m.Path == scope && m.Replace == nil && m.Version != "" {
				return m.Version
			}
		}
	}
	return "(devel)"
})

// ofLocker observes one Locker: what it knows of grants and servers is that Locker's.
type ofLocker struct {
	*observer
	spans   *spans
	reports *reports
}

// ObserveLocker implements [locker.StatsObserver].
func (o *observer) ObserveLocker(strategy string, stats func() locker.Stats) (each locker.Observer, closed func()) {
	r := o.nodes.add()
	left := o.levels.add(strategy, stats)
	return &ofLocker{o, newSpans(o.tracer), r}, func() {
		left()
		o.nodes.remove(r)
	}
}

// Observe implements [locker.Observer].
func (o *ofLocker) Observe(ctx context.Context, e locker.Event) {
	o.observe(ctx, e, o.spans, o.reports)
}

// Observe implements [locker.Observer].
func (o *observer) Observe(ctx context.Context, e locker.Event) {
	o.observe(ctx, e, o.spans, o.reports)
}

func (o *observer) observe(ctx context.Context, e locker.Event, spans *spans, r *reports) {
	name := ""
	if o.keys != nil && e.Kind != locker.EventNode {
		name = o.keys(e.Key)
	}
	s := o.seriesOf(ctx, seriesID{e.Strategy, name})
	if e.Dropped > 0 {
		spans.forget()
	}
	switch e.Kind {
	case locker.EventAcquired:
		o.acquisition(ctx, e, s, acquired, spans)
		if e.HandOver {
			o.handOvers.Add(ctx, 1, s.key.add...)
		}
	case locker.EventNotAcquired:
		o.acquisition(ctx, e, s, outcomeOf(e.Err), spans)
	case locker.EventWaiting:
		o.waits.Add(ctx, 1, s.key.add...)
	case locker.EventReleased:
		o.releases.Add(ctx, 1, s.released.add...)
		o.holdTime.Record(ctx, e.Duration.Seconds(), s.released.record...)
		spans.ended(e)
	case locker.EventReleaseFailed:
		o.releases.Add(ctx, 1, s.releaseFailed.add...)
		o.holdTime.Record(ctx, e.Duration.Seconds(), s.releaseFailed.record...)
		spans.ended(e)
	case locker.EventLetExpire:
		o.holdTime.Record(ctx, e.Duration.Seconds(), s.letExpire.record...)
		spans.ended(e)
	case locker.EventRenewed:
		o.renewal(ctx, e, &s.renewed)
	case locker.EventRenewFailed:
		o.renewal(ctx, e, &s.renewFailed)
	case locker.EventAtRisk:
		o.atRisk.Add(ctx, 1, s.key.add...)
	case locker.EventReleaseRequested:
		o.requests.Add(ctx, 1, s.key.add...)
	case locker.EventLost:
		cause := causeOf(e.Err)
		o.holdTime.Record(ctx, e.Duration.Seconds(), s.lost.record...)
		o.losses.Add(ctx, 1, s.losses[cause].add...)
		spans.lost(e, name, cause)
	case locker.EventNode:
		o.node(ctx, e, r)
	}
}

func (o *observer) acquisition(ctx context.Context, e locker.Event, s *series, out outcome, spans *spans) {
	o.acquisitions.Add(ctx, 1, s.acquisitions[out].add...)
	o.acquireTime.Record(ctx, e.Duration.Seconds(), s.acquisitions[out].record...)
	spans.acquisition(ctx, e, s.name, out)
}

func (o *observer) renewal(ctx context.Context, e locker.Event, a *attributes) {
	o.renewals.Add(ctx, 1, a.add...)
	o.renewTime.Record(ctx, e.Duration.Seconds(), a.record...)
}

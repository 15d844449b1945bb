package otellocker

import (
	"context"
	"errors"
	"slices"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/distlock/locker"
)

// The attributes' names.
const (
	strategyKey  = attribute.Key("locker.strategy")
	outcomeKey   = attribute.Key("locker.outcome")
	keyKey       = attribute.Key("locker.key")
	causeKey     = attribute.Key("locker.loss.cause")
	nodeKey      = attribute.Key("locker.node")
	tokenKey     = attribute.Key("locker.token")
	handOverKey  = attribute.Key("locker.hand_over")
	errorTypeKey = attribute.Key("error.type") // of the semantic conventions
)

// boundaries lists the boundaries of the histograms, in seconds: from a lock that is free on a near store
// to a wait or a hold of a minute.
var boundaries = []float64{
	.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60,
}

// observer is a [locker.Observer]. Observe is called by one goroutine for each Locker.
type observer struct {
	keys func(string) string // or nil
	instruments
	levels levels
	nodes  nodes
	tracer trace.Tracer

	// These two are for events that come by an Observer of the user's own.
	spans   *spans
	reports *reports

	mu  sync.RWMutex
	all map[seriesID]*series
}

var _ locker.Observer = (*observer)(nil)

// instruments record the metrics.
type instruments struct {
	acquisitions, waits, handOvers, releases, renewals, losses, nodeFailures metric.Int64Counter
	atRisk, requests                                                         metric.Int64Counter

	acquireTime, holdTime, renewTime metric.Float64Histogram
}

func newInstruments(m metric.Meter) (instruments, error) {
	var in instruments
	var errs []error
	counter := func(to *metric.Int64Counter, name, unit, means string) {
		c, err := m.Int64Counter(name, metric.WithUnit(unit), metric.WithDescription(means))
		*to, errs = c, append(errs, err)
	}
	histogram := func(to *metric.Float64Histogram, name, means string) {
		h, err := m.Float64Histogram(name, metric.WithUnit("s"), metric.WithDescription(means),
			metric.WithExplicitBucketBoundaries(boundaries...))
		*to, errs = h, append(errs, err)
	}
	counter(&in.acquisitions, "locker.acquisitions", "{acquisition}", "Calls of Lock and TryLock that have ended.")
	histogram(&in.acquireTime, "locker.acquire.duration", "Time from a call of Lock or TryLock to its end.")
	counter(&in.waits, "locker.waits", "{wait}", "Calls of Lock that had to wait.")
	counter(&in.handOvers, "locker.hand_overs", "{hand_over}", "Locks handed over inside the process, without the store.")
	histogram(&in.holdTime, "locker.hold.duration", "Time from a grant to its release or loss.")
	counter(&in.renewals, "locker.renewals", "{renewal}", "Renewals that have ended.")
	histogram(&in.renewTime, "locker.renew.duration", "Time from the command of a renewal to its answer.")
	counter(&in.losses, "locker.lease.lost", "{lease}", "Leases that ended before they were unlocked.")
	counter(&in.atRisk, "locker.lease.at_risk", "{lease}", "Leases whose renewals have failed for so long that they were in danger.")
	counter(&in.requests, "locker.release.requests", "{request}", "Leases whose holder was asked for the release.")
	counter(&in.nodeFailures, "locker.node.failures", "{failure}", "Times that one of several servers went down, slow or unusable.")
	counter(&in.releases, "locker.releases", "{release}", "Locks that were given back, or could not be.")
	return in, errors.Join(errs...)
}

// attributes are a set in the forms that instruments take, so that no event makes them anew.
type attributes struct {
	add     []metric.AddOption
	record  []metric.RecordOption
	observe []metric.ObserveOption
}

func attributesOf(kvs ...attribute.KeyValue) attributes {
	o := metric.WithAttributeSet(attribute.NewSet(kvs...))
	return attributes{[]metric.AddOption{o}, []metric.RecordOption{o}, []metric.ObserveOption{o}}
}

// seriesID identifies a series: a strategy, and the name given to keys by WithKeys.
type seriesID struct{ strategy, name string }

// series are the attributes that events of one strategy and key name come with.
type series struct {
	name                          string
	key                           attributes
	acquisitions                  [outcomes]attributes
	released, releaseFailed, lost attributes
	letExpire                     attributes
	renewed, renewFailed          attributes
	losses                        [causes]attributes
}

// maxSeries bounds what is kept for names that turn out to be many.
const maxSeries = 1000

func (o *observer) seriesOf(ctx context.Context, id seriesID) *series {
	o.mu.RLock()
	s := o.all[id]
	o.mu.RUnlock()
	if s != nil {
		return s
	}
	s = newSeries(id)
	o.announce(ctx, s)
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.all) < maxSeries {
		o.all[id] = s
	}
	return s
}

// announce counts no failure of each kind: a store such as Prometheus sees the first failure
// as an increase only if it has seen a 0 before.
func (o *observer) announce(ctx context.Context, s *series) {
	o.releases.Add(ctx, 0, s.releaseFailed.add...)
	o.atRisk.Add(ctx, 0, s.key.add...)
	o.renewals.Add(ctx, 0, s.renewFailed.add...)
	for out := range otherOutcome {
		if out.failed() {
			o.acquisitions.Add(ctx, 0, s.acquisitions[out].add...)
		}
	}
	for c := range otherCause {
		o.losses.Add(ctx, 0, s.losses[c].add...)
	}
}

func newSeries(id seriesID) *series {
	common := []attribute.KeyValue{strategyKey.String(id.strategy)}
	s := &series{name: id.name}
	if id.name != "" {
		common = append(common, keyKey.String(id.name))
	}
	with := func(more ...attribute.KeyValue) attributes {
		return attributesOf(slices.Concat(common, more)...)
	}
	s.key = with()
	for out := range outcomes {
		kvs := []attribute.KeyValue{outcomeKey.String(outcomeNames[out])}
		if out.failed() {
			kvs = append(kvs, errorTypeKey.String(outcomeNames[out]))
		}
		s.acquisitions[out] = with(kvs...)
	}
	s.released = with(outcomeKey.String("released"))
	s.releaseFailed = with(outcomeKey.String("release_failed"), errorTypeKey.String(outcomeNames[unavailable]))
	s.letExpire = with(outcomeKey.String("let_expire"))
	s.lost = with(outcomeKey.String("lost"), errorTypeKey.String(outcomeNames[lost]))
	s.renewed = with(outcomeKey.String("renewed"))
	s.renewFailed = with(outcomeKey.String("renew_failed"), errorTypeKey.String(outcomeNames[unavailable]))
	for c := range causes {
		s.losses[c] = with(causeKey.String(causeNames[c]))
	}
	return s
}

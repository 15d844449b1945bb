package otellocker

import (
	"context"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/distlock/locker"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	semconv "go.opentelemetry.io/otel/semconv/v1.37.0"
)

// nodes are the servers of a quorum, as each Locker has reported them last. They are read when
// metrics are collected, and a Locker's reports end with the Locker: after its Close it takes none back.
type nodes struct {
	mu sync.Mutex
	of []*reports
}

// reports holds the reports of one Locker.
type reports struct {
	of map[nodeID]nodeState
}

type nodeID struct{ strategy, node string }

type nodeState struct {
	attributes
	up int64
	at time.Time
}

func (ns *nodes) register(m metric.Meter) error {
	_, err := m.Int64ObservableGauge("locker.node.up", metric.WithUnit("{node}"),
		metric.WithDescription("1 if a server that was in trouble is well again, 0 while it is down, slow or unusable."),
		metric.WithInt64Callback(func(_ context.Context, o metric.Int64Observer) error {
			for _, s := range ns.latest() {
				o.Observe(s.up, s.observe...)
			}
			return nil
		}))
	return err
}

// latest returns the last report on each server. A Locker that is not in use does not look at its servers, so
// the older report of another Locker counts for nothing.
func (ns *nodes) latest() map[nodeID]nodeState {
	ns.mu.Lock()
	defer ns.mu.Unlock()
	last := make(map[nodeID]nodeState)
	for _, r := range ns.of {
		for id, s := range r.of {
			if s.at.After(last[id].at) {
				last[id] = s
			}
		}
	}
	return last
}

func (ns *nodes) add() *reports {
	ns.mu.Lock()
	defer ns.mu.Unlock()
	r := &reports{make(map[nodeID]nodeState)}
	ns.of = append(ns.of, r)
	return r
}

// remove forgets what a Locker has reported.
func (ns *nodes) remove(r *reports) {
	ns.mu.Lock()
	defer ns.mu.Unlock()
	ns.of = slices.DeleteFunc(ns.of, func(o *reports) bool { return o == r })
}

// node is rare, so its attributes are made each time.
func (o *observer) node(ctx context.Context, e locker.Event, r *reports) {
	kvs := []attribute.KeyValue{strategyKey.String(e.Strategy), nodeKey.String(e.Node)}
	if host, port, err := net.SplitHostPort(e.Node); err == nil {
		if n, err := strconv.Atoi(port); err == nil {
			kvs = append(kvs, semconv.ServerAddress(host), semconv.ServerPort(n))
		}
	}
	s := nodeState{attributes: attributesOf(kvs...), at: time.Now()}
	if e.Err == nil {
		s.up = 1
	} else {
		o.nodeFailures.Add(ctx, 1, s.add...)
	}
	o.nodes.mu.Lock()
	defer o.nodes.mu.Unlock()
	r.of[nodeID{e.Strategy, e.Node}] = s
}

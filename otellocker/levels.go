package otellocker

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/distlock/locker"
	"go.opentelemetry.io/otel/metric"
)

// levels are read from the Lockers when metrics are collected: a count of
// events is wrong for ever once an event was dropped.
type levels struct {
	mu sync.Mutex
	of map[string]*level // by strategy
}

// level has the state of the Lockers of one strategy.
type level struct {
	attributes
	open    []*func() locker.Stats
	dropped int64 // events, by Lockers that are closed
}

func (ls *levels) register(m metric.Meter) error {
	held, err1 := m.Int64ObservableUpDownCounter("locker.lease.held", metric.WithUnit("{lease}"),
		metric.WithDescription("Locks held by this process; one that was re-entered counts once."))
	dropped, err2 := m.Int64ObservableCounter("locker.event.dropped", metric.WithUnit("{event}"),
		metric.WithDescription("Events that no other metric counts, since too many were waiting."))
	_, err3 := m.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		ls.mu.Lock() // so that a Locker that is being closed counts once
		defer ls.mu.Unlock()
		for _, l := range ls.of {
			locks, drops := 0, l.dropped
			for _, stats := range l.open {
				st := (*stats)()
				locks, drops = locks+st.Locks, drops+int64(st.DroppedEvents)
			}
			o.ObserveInt64(held, int64(locks), l.observe...)
			o.ObserveInt64(dropped, drops, l.observe...)
		}
		return nil
	}, held, dropped)
	return errors.Join(err1, err2, err3)
}

// add adds a Locker. A strategy stays, with what its Lockers have counted, when all are closed.
func (ls *levels) add(strategy string, stats func() locker.Stats) (closed func()) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	l := ls.of[strategy]
	if l == nil {
		l = &level{attributes: attributesOf(strategyKey.String(strategy))}
		if ls.of == nil {
			ls.of = make(map[string]*level)
		}
		ls.of[strategy] = l
	}
	of := &stats
	l.open = append(l.open, of)
	return func() {
		ls.mu.Lock()
		defer ls.mu.Unlock()
		l.open = slices.DeleteFunc(l.open, func(o *func() locker.Stats) bool { return o == of })
		l.dropped += int64(stats().DroppedEvents)
	}
}

package locker

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

const (
	maxNotices   = 1000
	noticesGrace = 500 * time.Millisecond // how long Close waits for their delivery
)

// notices is the queue between the Locker and the user's code: events for the
// observer and records for the logger. A goroutine delivers them while there are
// some, so that nothing of the user's runs on the way of a lock, a renewal, a loss
// or Close. A zero notices delivers nothing.
type notices struct {
	observer Observer
	handler  slog.Handler

	mu      sync.Mutex
	pending []notice
	dropped int
	running chan struct{} // closed when the goroutine ends; nil: there is none
}

// notice is an event, or a record for one of the logger's handlers.
type notice struct {
	ctx     context.Context
	event   Event
	handler slog.Handler // nil: event
	record  slog.Record
}

// wanted reports whether it makes sense to put an event together.
func (q *notices) wanted() bool { return q.observer != nil || q.handler != nil }

// event queues an event. It is called while locks are held.
func (q *notices) event(ctx context.Context, e Event) {
	if !q.wanted() {
		return
	}
	e.Time = time.Now()
	q.push(notice{ctx: context.WithoutCancel(ctx), event: e})
}

func (q *notices) push(n notice) {
	q.mu.Lock()
	defer q.mu.Unlock()
	isEvent := n.handler == nil
	switch {
	case len(q.pending) >= maxNotices:
		if isEvent {
			q.dropped++
		}
		return
	case isEvent:
		n.event.Dropped, q.dropped = q.dropped, 0
	}
	q.pending = append(q.pending, n)
	if q.running == nil {
		q.running = make(chan struct{})
		go q.drain()
	}
}

func (q *notices) drain() {
	through := false
	defer func() {
		if !through {
			go q.drain() // the user's code has ended this goroutine
		}
	}()
	for {
		q.mu.Lock()
		if len(q.pending) == 0 {
			q.pending = nil
			close(q.running)
			q.running = nil
			q.mu.Unlock()
			through = true
			return
		}
		n := q.pending[0]
		q.pending[0] = notice{}
		q.pending = q.pending[1:]
		q.mu.Unlock()
		q.deliver(&n)
	}
}

func (q *notices) deliver(n *notice) {
	if n.handler != nil {
		q.guard("log handler", func() { handle(n.ctx, n.handler, n.record) })
		return
	}
	if q.handler != nil {
		q.guard("log handler", func() { logEvent(n.ctx, q.handler, &n.event) })
	}
	if q.observer != nil {
		q.guard("observer", func() { q.observer.Observe(n.ctx, n.event) })
	}
}

// guard recovers a panic of the user's code.
func (q *notices) guard(what string, f func()) {
	defer func() {
		p := recover()
		if p == nil || q.handler == nil {
			return
		}
		defer func() { _ = recover() }() // the handler's own
		r := slog.NewRecord(time.Now(), slog.LevelError, what+" panicked", 0)
		r.AddAttrs(slog.Any("panic", p))
		handle(context.Background(), q.handler, r)
	}()
	f()
}

// close waits a little for what is being delivered. What then waits is dropped.
func (q *notices) close() {
	q.mu.Lock()
	running := q.running
	q.mu.Unlock()
	if running != nil {
		select {
		case <-running:
		case <-time.After(noticesGrace):
		}
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	for i := range q.pending {
		if q.pending[i].handler == nil {
			q.dropped++
		}
	}
	q.pending = nil
}

func handle(ctx context.Context, h slog.Handler, r slog.Record) {
	if h.Enabled(ctx, r.Level) {
		_ = h.Handle(ctx, r)
	}
}

// logEvent writes what a person wants to read of an event.
func logEvent(ctx context.Context, h slog.Handler, e *Event) {
	level, msg, span := slog.LevelWarn, "", "held"
	switch e.Kind {
	case EventAcquired:
		level, msg, span = slog.LevelDebug, "lock acquired", "wait"
	case EventReleased:
		level, msg = slog.LevelDebug, "lock released"
	case EventReleaseFailed:
		msg = "release failed; the TTL frees the key"
	case EventRenewFailed:
		msg, span = "renewal failed; it is tried again until the deadline", "took"
	case EventLost:
		msg = "lock lost"
	default:
		return // a caller's own affair
	}
	if !h.Enabled(ctx, level) {
		return
	}
	r := slog.NewRecord(e.Time, level, msg, 0)
	r.AddAttrs(slog.String("strategy", e.Strategy), slog.String("key", e.Key), slog.Int64("token", e.Token), slog.Duration(span, e.Duration))
	if e.Owner != "" {
		r.AddAttrs(slog.String("owner", e.Owner))
	}
	if e.Err != nil {
		r.AddAttrs(slog.Any("err", e.Err))
	}
	_ = h.Handle(ctx, r)
}

// logger is what the driver and the engine log with: it never blocks.
func (q *notices) logger() *slog.Logger {
	if q.handler == nil {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(queued{q, q.handler})
}

// queued is a [slog.Handler] that leaves the work to the queue.
type queued struct {
	q  *notices
	to slog.Handler
}

// Enabled is always true: the user's handler is asked when the record is delivered.
func (h queued) Enabled(context.Context, slog.Level) bool { return true }

func (h queued) Handle(ctx context.Context, r slog.Record) error {
	h.q.push(notice{ctx: context.WithoutCancel(ctx), handler: h.to, record: r.Clone()})
	return nil
}

func (h queued) WithAttrs(attrs []slog.Attr) slog.Handler { return queued{h.q, h.to.WithAttrs(attrs)} }
func (h queued) WithGroup(name string) slog.Handler       { return queued{h.q, h.to.WithGroup(name)} }

package locker

import (
	"context"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"
)

const (
	maxNotices   = 1000
	noticesGrace = 500 * time.Millisecond // how long Close waits for their delivery
)

// notices is what stands between the Locker and the user's code, so that nothing of
// the user's runs on the way of a lock, a renewal, a loss or Close. The observer and
// the logger have an outbox each: one that is slow holds up its own only.
type notices struct {
	observer Observer     // or nil
	handler  slog.Handler // or nil
	events   outbox
	records  outbox
}

// wanted reports whether it makes sense to put an event together.
func (n *notices) wanted() bool { return n.observer != nil || n.handler != nil }

// event tells of an event. It is called while locks are held. It costs nothing if there is
// none to tell.
func (n *notices) event(ctx context.Context, e Event) {
	if n.wanted() {
		n.tell(ctx, e)
	}
}

func (n *notices) tell(ctx context.Context, e Event) {
	e.Time = time.Now()
	ctx = context.WithoutCancel(ctx)
	if n.handler != nil {
		n.records.push(func(int) { logEvent(ctx, n.handler, e) }, nil)
	}
	if n.observer != nil {
		n.events.push(func(dropped int) {
			told := e // the logger's is another goroutine
			told.Dropped = dropped
			n.observer.Observe(ctx, told)
		}, n.panicked)
	}
}

// panicked logs that the observer panicked.
func (n *notices) panicked(v any) {
	if n.handler != nil {
		n.logger().Error("observer panicked", "panic", v, "stack", string(debug.Stack()))
	}
}

// close waits a little for what is being delivered. What then waits is dropped.
func (n *notices) close() {
	end := time.Now().Add(noticesGrace)
	n.events.close(end)
	n.records.close(end)
}

// outbox is a queue of calls of the user's code. A goroutine makes them, one at a time
// and in order, while there are some.
type outbox struct {
	mu      sync.Mutex
	pending []outboxed
	dropped int           // not told yet
	total   uint64        // dropped, since ever
	running chan struct{} // closed when the goroutine ends; nil: there is none
}

type outboxed struct {
	call     func(dropped int)
	dropped  int       // calls dropped before this one
	panicked func(any) // may be nil
}

func (o *outbox) push(call func(dropped int), panicked func(any)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.pending) >= maxNotices {
		o.dropped++
		o.total++
		return
	}
	o.pending = append(o.pending, outboxed{call, o.dropped, panicked})
	o.dropped = 0
	if o.running == nil {
		o.running = make(chan struct{})
		go o.drain()
	}
}

// lost is how many calls were dropped.
func (o *outbox) lost() uint64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.total
}

func (o *outbox) drain() {
	through := false
	defer func() {
		if !through {
			go o.drain() // the user's code has ended this goroutine
		}
	}()
	for {
		o.mu.Lock()
		if len(o.pending) == 0 {
			o.pending = nil
			close(o.running)
			o.running, through = nil, true
			o.mu.Unlock()
			return
		}
		next := o.pending[0]
		o.pending[0] = outboxed{}
		o.pending = o.pending[1:]
		o.mu.Unlock()
		next.make()
	}
}

func (c *outboxed) make() {
	defer func() {
		if v := recover(); v != nil && c.panicked != nil {
			c.panicked(v)
		}
	}()
	c.call(c.dropped)
}

func (o *outbox) close(end time.Time) {
	o.mu.Lock()
	running := o.running
	o.mu.Unlock()
	if running != nil {
		timer := time.NewTimer(time.Until(end))
		defer timer.Stop()
		select {
		case <-running:
		case <-timer.C:
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.dropped += len(o.pending)
	o.total += uint64(len(o.pending))
	o.pending = nil
}

// logEvent writes what a person wants to read of an event.
func logEvent(ctx context.Context, h slog.Handler, e Event) {
	level, msg, span := slog.LevelWarn, "", "held"
	switch e.Kind {
	case EventAcquired:
		level, msg, span = slog.LevelDebug, "lock acquired", "wait"
	case EventReleased:
		level, msg = slog.LevelDebug, "lock released"
	case EventLetExpire:
		level, msg = slog.LevelDebug, "lock left to its TTL"
	case EventReleaseFailed:
		msg = "release failed; the TTL frees the key"
	case EventRenewFailed:
		msg, span = "renewal failed; automatic ones are tried again until the deadline", "took"
		if e.again {
			level = slog.LevelDebug
		}
	case EventLost:
		msg = "lock lost"
	case EventNode:
		level, msg = slog.LevelInfo, "a node answers again"
		if e.Err != nil {
			level, msg = slog.LevelWarn, "a node is down, slow, or of no use; locks go on while a majority is left"
		}
	default:
		return // a caller's own affair
	}
	if !h.Enabled(ctx, level) {
		return
	}
	r := slog.NewRecord(e.Time, level, msg, 0)
	r.AddAttrs(slog.String("strategy", e.Strategy))
	if e.Kind == EventNode {
		r.AddAttrs(slog.String("node", e.Node))
	} else {
		r.AddAttrs(slog.String("key", e.Key), slog.Int64("token", e.Token), slog.Duration(span, e.Duration))
	}
	if e.Owner != "" {
		r.AddAttrs(slog.String("owner", e.Owner))
	}
	if e.Err != nil {
		r.AddAttrs(slog.Any("err", e.Err))
	}
	_ = h.Handle(ctx, r)
}

// logger is what the driver and the engine log with: it never blocks.
func (n *notices) logger() *slog.Logger {
	if n.handler == nil {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(queued{&n.records, n.handler})
}

// queued is a [slog.Handler] that leaves the work to the outbox.
type queued struct {
	o  *outbox
	to slog.Handler
}

// Enabled is always true: the user's handler is asked when the record is delivered.
func (h queued) Enabled(context.Context, slog.Level) bool { return true }

func (h queued) Handle(ctx context.Context, r slog.Record) error {
	ctx, r = context.WithoutCancel(ctx), r.Clone()
	h.o.push(func(int) {
		if h.to.Enabled(ctx, r.Level) {
			_ = h.to.Handle(ctx, r)
		}
	}, nil)
	return nil
}

func (h queued) WithAttrs(attrs []slog.Attr) slog.Handler { return queued{h.o, h.to.WithAttrs(attrs)} }
func (h queued) WithGroup(name string) slog.Handler       { return queued{h.o, h.to.WithGroup(name)} }

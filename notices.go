package locker

import (
	"context"
	"log/slog"
	"math"
	"runtime/debug"
	"sync"
	"time"

	"github.com/distlock/locker/internal/outbox"
)

const (
	// maxNotices is how many may wait for their delivery; renewals have half of the room,
	// and the end of a lock whose grant was kept has room always. So what waits is bounded
	// by maxNotices and the locks held.
	maxNotices = 1000
	// noticesGrace is how long Close waits for their delivery, and waits again and again while the
	// observer accepts events, until the time for Close is over.
	noticesGrace = 500 * time.Millisecond
)

// notices delivers events and log records, so that none of the user's code runs on the way of a
// lock, a renewal, a loss or Close. The observer and the logger have an outbox each: a slow one
// does not delay the other.
type notices struct {
	observer Observer     // or nil
	handler  slog.Handler // or nil
	wanted   bool         // one of them is set: it makes sense to put an event together
	events   outbox.Outbox
	records  outbox.Outbox
}

// event delivers an event that is wanted, and reports whether the observer gets it. It may be
// called under the mutex.
func (n *notices) event(ctx context.Context, e Event) (kept bool) {
	room := maxNotices
	switch e.Kind {
	case EventRenewed, EventRenewFailed:
		room /= 2
	}
	return n.deliver(ctx, e, room)
}

// end delivers the end of a lock to the observer if the observer gets its grant, and only
// then: who adds them up comes to the right sum.
func (n *notices) end(ctx context.Context, e Event, grantKept bool) {
	room := 0
	if grantKept {
		room = math.MaxInt
	}
	n.deliver(ctx, e, room)
}

func (n *notices) deliver(ctx context.Context, e Event, room int) (kept bool) {
	e.Time = time.Now()
	ctx = context.WithoutCancel(ctx)
	if _, _, _, logged := logging(e); logged && n.handler != nil {
		n.records.Push(maxNotices, func(int) { logEvent(ctx, n.handler, e) }, nil)
	}
	if n.observer == nil {
		return false
	}
	return n.events.Push(room, func(dropped int) {
		told := e // the logger's is another goroutine
		told.Dropped = dropped
		n.observer.Observe(ctx, told)
	}, n.panicked)
}

// panicked logs that the observer panicked.
func (n *notices) panicked(v any) {
	if n.handler != nil {
		n.logger().Error("observer panicked", "panic", v, "stack", string(debug.Stack()))
	}
}

// close waits a little for the delivery of what waits, and until most while the observer
// accepts events. It drops the rest.
func (n *notices) close(most time.Time) {
	least := time.Now().Add(noticesGrace)
	n.events.Close(noticesGrace, most)
	n.records.Close(noticesGrace, least)
}

// logging returns how an event is logged, if it is; span names its Duration.
func logging(e Event) (level slog.Level, msg, span string, logged bool) {
	switch e.Kind {
	case EventAcquired:
		return slog.LevelDebug, "lock acquired", "wait", true
	case EventReleased:
		return slog.LevelDebug, "lock released", "held", true
	case EventLetExpire:
		return slog.LevelDebug, "lock left to its TTL", "held", true
	case EventReleaseFailed:
		return slog.LevelWarn, "release failed; the TTL frees the key", "held", true
	case EventRenewFailed:
		if level = slog.LevelWarn; e.again {
			level = slog.LevelDebug
		}
		return level, "renewal failed; automatic ones are tried again until the deadline", "took", true
	case EventAtRisk:
		return slog.LevelWarn, "lock at risk: it is lost soon unless a renewal succeeds", "held", true
	case EventReleaseRequested:
		return slog.LevelInfo, "the release of a lock is requested", "held", true
	case EventLost:
		return slog.LevelWarn, "lock lost", "held", true
	case EventNode:
		if e.Err != nil {
			return slog.LevelWarn, "a node is down, slow, or unusable; locks go on while a majority is left", "", true
		}
		return slog.LevelInfo, "a node answers again", "", true
	}
	return 0, "", "", false // a caller's own affair
}

// logEvent writes the record of an event.
func logEvent(ctx context.Context, h slog.Handler, e Event) {
	level, msg, span, _ := logging(e)
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

// logger returns the logger of the driver and the engine. It never blocks.
func (n *notices) logger() *slog.Logger {
	if n.handler == nil {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(queued{&n.records, func() slog.Handler { return n.handler }})
}

// queued is a [slog.Handler] that leaves the work to the outbox, whose goroutine alone asks
// for the user's handler.
type queued struct {
	o  *outbox.Outbox
	to func() slog.Handler
}

// Enabled is always true: the user's handler is asked when the record is delivered.
func (h queued) Enabled(context.Context, slog.Level) bool { return true }

func (h queued) Handle(ctx context.Context, r slog.Record) error {
	ctx, r = context.WithoutCancel(ctx), r.Clone()
	h.o.Push(maxNotices, func(int) {
		if to := h.to(); to.Enabled(ctx, r.Level) {
			_ = to.Handle(ctx, r)
		}
	}, nil)
	return nil
}

func (h queued) WithAttrs(attrs []slog.Attr) slog.Handler {
	return queued{h.o, sync.OnceValue(func() slog.Handler { return h.to().WithAttrs(attrs) })}
}

func (h queued) WithGroup(name string) slog.Handler {
	return queued{h.o, sync.OnceValue(func() slog.Handler { return h.to().WithGroup(name) })}
}

package locker

import (
	"context"
	"log/slog"
	"math"
	"runtime/debug"
	"sync"
	"time"
)

const (
	// maxNotices is how many may wait for their delivery; renewals have half of the room,
	// and the end of a lock whose grant was kept has room always. So what waits is bounded
	// by maxNotices and the locks held.
	maxNotices = 1000
	// noticesGrace is how long Close waits for their delivery; for as long again, as its
	// budget allows, while the observer gets on.
	noticesGrace = 500 * time.Millisecond
)

// notices is what stands between the Locker and the user's code, so that nothing of
// the user's runs on the way of a lock, a renewal, a loss or Close. The observer and
// the logger have an outbox each: one that is slow holds up its own only.
type notices struct {
	observer Observer     // or nil
	handler  slog.Handler // or nil
	wanted   bool         // one of them is set: it makes sense to put an event together
	events   outbox
	records  outbox
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
		n.records.push(maxNotices, func(int) { logEvent(ctx, n.handler, e) }, nil)
	}
	if n.observer == nil {
		return false
	}
	return n.events.push(room, func(dropped int) {
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

// close waits a little for what is being delivered, and until most while the observer gets
// on with it. What then waits is dropped.
func (n *notices) close(most time.Time) {
	least := time.Now().Add(noticesGrace)
	n.events.close(least, most)
	n.records.close(least, least)
}

// outbox is a queue of calls of the user's code. A goroutine makes them, one at a time
// and in order, while there are some.
type outbox struct {
	mu      sync.Mutex
	pending []outboxed
	made    uint64        // delivered, since ever
	dropped int           // not told yet
	total   uint64        // dropped, since ever
	running chan struct{} // closed when the goroutine ends; nil: there is none
}

type outboxed struct {
	call     func(dropped int)
	dropped  int       // calls dropped before this one
	panicked func(any) // may be nil
}

// push reports whether the call will be made: it is dropped if room are waiting.
func (o *outbox) push(room int, call func(dropped int), panicked func(any)) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.pending) >= room {
		o.dropped++
		o.total++
		return false
	}
	o.pending = append(o.pending, outboxed{call, o.dropped, panicked})
	o.dropped = 0
	if o.running == nil {
		o.running = make(chan struct{})
		go o.drain()
	}
	return true
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
		o.made++
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

func (o *outbox) close(least, most time.Time) {
	for end := least; o.await(end) && time.Now().Before(most); {
		end = time.Now().Add(noticesGrace)
		if most.Before(end) {
			end = most
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.dropped += len(o.pending)
	o.total += uint64(len(o.pending))
	o.pending = nil
}

// await waits until all calls are made, but not beyond end. It reports whether there are
// more, and some were made meanwhile.
func (o *outbox) await(end time.Time) bool {
	o.mu.Lock()
	running, before := o.running, o.made
	o.mu.Unlock()
	if running == nil {
		return false
	}
	timer := time.NewTimer(time.Until(end))
	defer timer.Stop()
	select {
	case <-running:
		return false
	case <-timer.C:
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.made > before
}

// logging is how an event is logged, if it is; span names its Duration.
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
	case EventLost:
		return slog.LevelWarn, "lock lost", "held", true
	case EventNode:
		if e.Err != nil {
			return slog.LevelWarn, "a node is down, slow, or of no use; locks go on while a majority is left", "", true
		}
		return slog.LevelInfo, "a node answers again", "", true
	}
	return 0, "", "", false // a caller's own affair
}

// logEvent writes what a person wants to read of an event.
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

// logger is what the driver and the engine log with: it never blocks.
func (n *notices) logger() *slog.Logger {
	if n.handler == nil {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(queued{&n.records, func() slog.Handler { return n.handler }})
}

// queued is a [slog.Handler] that leaves the work to the outbox, whose goroutine alone asks
// for the user's handler.
type queued struct {
	o  *outbox
	to func() slog.Handler
}

// Enabled is always true: the user's handler is asked when the record is delivered.
func (h queued) Enabled(context.Context, slog.Level) bool { return true }

func (h queued) Handle(ctx context.Context, r slog.Record) error {
	ctx, r = context.WithoutCancel(ctx), r.Clone()
	h.o.push(maxNotices, func(int) {
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

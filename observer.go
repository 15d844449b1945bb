package locker

import (
	"log/slog"
	"sync"
)

const maxPendingEvents = 1000

// events delivers to the observer.
type events struct {
	to   Observer // or nil
	log  *slog.Logger
	work *tracker // Close waits for what is being delivered

	mu      sync.Mutex
	pending []Event
	running bool
	dropped int
}

// now delivers an event of the caller's own doing.
func (q *events) now(e Event) {
	if q.to != nil {
		q.deliver(e)
	}
}

func (q *events) deliver(e Event) {
	defer func() {
		if p := recover(); p != nil {
			q.log.Error("observer panicked", "event", e.Kind.String(), "panic", p)
		}
	}()
	q.to.Observe(e)
}

// later delivers an event of the watchdog's, which must not wait for observers.
func (q *events) later(e Event) {
	if q.to == nil {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.pending) >= maxPendingEvents {
		q.dropped++
		return
	}
	e.Dropped, q.dropped = q.dropped, 0
	q.pending = append(q.pending, e)
	if !q.running {
		q.running = true
		q.work.beginAlways()
		go q.drain()
	}
}

func (q *events) drain() {
	defer q.work.end()
	for {
		q.mu.Lock()
		batch := q.pending
		q.pending = nil
		if len(batch) == 0 {
			q.running = false
			q.mu.Unlock()
			return
		}
		q.mu.Unlock()
		for _, e := range batch {
			q.deliver(e)
		}
	}
}

package redisdriver

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// hub is the subscriptions at one server. Each connection is a session; after any
// trouble a new session subscribes to everything anew, and everybody is woken,
// since messages may have been missed.
type hub struct {
	client  *redis.Client
	cluster *redis.ClusterClient // or nil
	sharded bool

	mu      sync.Mutex
	topics  map[string]*topic
	cur     *session // nil: none, or one is due
	due     *time.Timer
	idle    *time.Timer
	pause   time.Duration
	refusal error
	refused time.Time // until when it is believed
	closed  bool
}

// topic is a channel with watches.
type topic struct {
	watches map[*watch]struct{}
	ready   chan struct{} // closed, and nil, when subscribed or when err is set
	err     error
}

// begin ends the wait for the subscription.
func (t *topic) begin() {
	if t.ready != nil {
		close(t.ready)
		t.ready = nil
	}
}

// watch is one listener of a channel. Its functions are called under h.mu.
type watch struct {
	h       *hub
	channel string
	signal  func()
	ended   func() // no signal comes any more
}

// Close implements [io.Closer].
func (w *watch) Close() error {
	w.h.drop(w)
	return nil
}

// watch returns once the server has confirmed w.
func (h *hub) watch(ctx context.Context, w *watch) (*watch, error) {
	channel := w.channel
	w.h = h
	h.mu.Lock()
	switch {
	case h.closed:
		h.mu.Unlock()
		return nil, redis.ErrClosed
	case time.Now().Before(h.refused):
		defer h.mu.Unlock()
		return nil, h.refusal
	}
	t := h.topics[channel]
	if t == nil {
		t = &topic{watches: make(map[*watch]struct{}), ready: make(chan struct{})}
		h.topics[channel] = t
		if h.cur != nil {
			h.enqueue(op{subscribe: true, channel: channel})
		}
	}
	t.watches[w] = struct{}{}
	if h.idle != nil {
		h.idle.Stop()
		h.idle = nil
	}
	if h.cur == nil && h.due == nil {
		h.open()
	}
	ready := t.ready
	h.mu.Unlock()
	if ready == nil {
		return w, nil
	}
	select {
	case <-ready:
	case <-ctx.Done():
		h.drop(w)
		return nil, ctx.Err()
	}
	h.mu.Lock()
	err := t.err
	h.mu.Unlock()
	if err != nil {
		return nil, err
	}
	return w, nil
}

func (h *hub) drop(w *watch) {
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.topics[w.channel]
	if t == nil {
		return
	}
	if _, ok := t.watches[w]; !ok { // it failed, and this is another topic
		return
	}
	delete(t.watches, w)
	if len(t.watches) > 0 {
		return
	}
	delete(h.topics, w.channel)
	if h.cur != nil {
		h.enqueue(op{channel: w.channel})
	}
	h.mayRest()
}

// mayRest ends the session in a while if there is no watch left; h.mu is held.
func (h *hub) mayRest() {
	if len(h.topics) == 0 && h.idle == nil {
		h.idle = time.AfterFunc(hubIdle, h.rest)
	}
}

// rest ends the session if there is no watch left.
func (h *hub) rest() {
	h.mu.Lock()
	h.idle = nil
	var old *session
	if len(h.topics) == 0 {
		old = h.end()
	}
	h.mu.Unlock()
	old.close()
}

func (h *hub) close() {
	h.mu.Lock()
	h.closed = true
	for _, t := range h.topics {
		t.fail(redis.ErrClosed)
	}
	h.topics = nil
	old := h.end()
	if h.idle != nil {
		h.idle.Stop()
	}
	h.mu.Unlock()
	old.close()
}

// end detaches the session, which the caller closes outside h.mu.
func (h *hub) end() *session {
	old := h.cur
	h.cur = nil
	if h.due != nil {
		h.due.Stop()
		h.due = nil
	}
	return old
}

// open begins a session with all topics. Called under h.mu.
func (h *hub) open() {
	s := &session{ps: h.client.Subscribe(context.Background()), pending: make(map[string]int), writing: true}
	h.cur = s
	for channel := range h.topics {
		h.enqueue(op{subscribe: true, channel: channel})
	}
	go func() {
		if h.write(s) {
			h.read(s)
		}
	}()
}

func (h *hub) wake(channel string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if t := h.topics[channel]; t != nil {
		t.signal()
	}
}

func (t *topic) signal() {
	for w := range t.watches {
		w.signal()
	}
}

// fail ends a topic: its watches can signal no more. Called under h.mu, by who
// takes it off h.topics.
func (t *topic) fail(err error) {
	t.err = err
	t.begin()
	for w := range t.watches {
		w.ended()
	}
}

// confirm notes that the server has subscribed us. If the channel was left and
// joined again meanwhile, only the last confirmation counts.
func (h *hub) confirm(s *session, channel string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.pause = 0
	if h.cur != s {
		return
	}
	s.answered(channel)
	if s.pending[channel]--; s.pending[channel] > 0 {
		return
	}
	delete(s.pending, channel)
	t := h.topics[channel]
	if t == nil {
		return
	}
	t.begin()
	t.signal()
}

// fail ends the session and begins another one a little later, not all processes at the
// same time. The new one wakes everybody; until then waiters look each second.
func (h *hub) fail(s *session, err error) {
	h.mu.Lock()
	if h.cur != s {
		h.mu.Unlock()
		s.close()
		return
	}
	old := h.end()
	if refused := isRefusal(err); refused || h.cluster != nil {
		if refused {
			// No permission, no such command: not again for a while.
			h.refusal, h.refused = err, time.Now().Add(hubRefusal)
		} else {
			// The slot may have another node by now: whoever watches asks again.
			h.cluster.ReloadState(context.Background())
		}
		for channel, t := range h.topics {
			t.fail(err)
			delete(h.topics, channel)
		}
		h.mu.Unlock()
		old.close()
		return
	}
	for _, t := range h.topics {
		if t.ready == nil {
			t.ready = make(chan struct{})
		}
	}
	if len(h.topics) > 0 && !h.closed {
		h.pause = min(max(hubPauseStep*h.pause, hubPauseMin), hubPauseMax)
		h.due = time.AfterFunc(h.pause/2+rand.N(h.pause/2), h.again)
	}
	h.mu.Unlock()
	old.close()
}

func (h *hub) again() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.due = nil
	if h.cur == nil && !h.closed && len(h.topics) > 0 {
		h.open()
	}
}

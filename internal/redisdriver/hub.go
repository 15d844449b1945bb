package redisdriver

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
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
	ready   chan struct{} // closed when subscribed, or when err is set
	isReady bool
	err     error
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

// session is one connection. Its commands are written in order, by a goroutine
// that lives while there are some, so that nobody holds h.mu over the network.
type session struct {
	ps      *redis.PubSub
	ops     []op
	pending map[string]int // subscriptions to a channel sent but not confirmed
	writing bool
	reading bool
}

type op struct {
	subscribe bool
	channel   string
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
			h.enqueue(op{true, channel})
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
		h.enqueue(op{false, w.channel})
	}
	if len(h.topics) == 0 && h.idle == nil {
		h.idle = time.AfterFunc(hubIdle, h.rest)
	}
}

// rest ends the session if nobody watches.
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

func (s *session) close() {
	if s != nil {
		_ = s.ps.Close()
	}
}

// open begins a session with all topics. Called under h.mu.
func (h *hub) open() {
	h.cur = &session{ps: h.client.Subscribe(context.Background()), pending: make(map[string]int)}
	for channel := range h.topics {
		h.enqueue(op{true, channel})
	}
}

func (h *hub) enqueue(o op) {
	s := h.cur
	if o.subscribe {
		s.pending[o.channel]++
	}
	s.ops = append(s.ops, o)
	if !s.writing {
		s.writing = true
		go h.write(s)
	}
}

// write sends the session's commands, as many channels at once as are there.
func (h *hub) write(s *session) {
	for {
		h.mu.Lock()
		n := 0
		for n < len(s.ops) && s.ops[n].subscribe == s.ops[0].subscribe &&
			(!h.sharded || Slot(s.ops[n].channel) == Slot(s.ops[0].channel)) {
			n++
		}
		if n == 0 || h.cur != s {
			s.writing = false
			h.mu.Unlock()
			return
		}
		channels := make([]string, n)
		for i := range channels {
			channels[i] = s.ops[i].channel
		}
		subscribe := s.ops[0].subscribe
		s.ops = s.ops[n:]
		h.mu.Unlock()

		ctx, cancel := context.WithTimeout(context.Background(), controlTimeout)
		var err error
		switch {
		case subscribe && h.sharded:
			err = s.ps.SSubscribe(ctx, channels...)
		case subscribe:
			err = s.ps.Subscribe(ctx, channels...)
		case h.sharded:
			err = s.ps.SUnsubscribe(ctx, channels...)
		default:
			err = s.ps.Unsubscribe(ctx, channels...)
		}
		cancel()
		if err != nil {
			h.fail(s, err)
			return
		}
		if !s.reading {
			s.reading = true
			go h.read(s)
		}
	}
}

// read handles what the server sends until the session ends. go-redis does not
// notice when pings stay unanswered, so that is done here.
func (h *hub) read(s *session) {
	asked := false
	for {
		msg, err := s.ps.ReceiveTimeout(context.Background(), pingEvery)
		var ne net.Error
		if errors.As(err, &ne) && ne.Timeout() && !asked {
			asked = true
			err = s.ps.Ping(context.Background())
			if err == nil {
				continue
			}
		}
		if slot, ok := movedSlot(err); ok {
			h.elsewhere(s, slot)
			continue
		}
		if err != nil {
			h.fail(s, err)
			return
		}
		asked = false
		switch m := msg.(type) {
		case *redis.Message:
			h.wake(m.Channel)
		case *redis.Subscription:
			switch m.Kind {
			case "subscribe", "ssubscribe":
				h.confirm(s, m.Channel)
			case "sunsubscribe":
				h.moved(m.Channel)
			}
		}
	}
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
	if !t.isReady {
		t.isReady = true
		close(t.ready)
	}
	for w := range t.watches {
		w.ended()
	}
}

// moved ends the topic of a channel that the server has unsubscribed, because its
// slot went to another node, unless we left it ourselves.
func (h *hub) moved(channel string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.topics[channel]
	if t == nil || h.cur == nil || h.cur.pending[channel] > 0 {
		return
	}
	delete(h.topics, channel)
	t.fail(errMoved)
	if h.cluster != nil {
		h.cluster.ReloadState(context.Background())
	}
}

// movedSlot is the slot of a subscription that another node is for.
func movedSlot(err error) (slot int, ok bool) {
	var server redis.Error
	if errors.As(err, &server) {
		n, _ := fmt.Sscanf(server.Error(), "MOVED %d ", &slot)
		return slot, n == 1
	}
	return 0, false
}

// elsewhere ends the topics of a slot.
func (h *hub) elsewhere(s *session, slot int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.cur != s || h.cluster == nil {
		return
	}
	for channel, t := range h.topics {
		if Slot(channel) == slot {
			delete(h.topics, channel)
			delete(s.pending, channel)
			t.fail(errMoved)
		}
	}
	h.cluster.ReloadState(context.Background())
}

var errMoved = errors.New("the channel has moved to another node")

// confirm notes that the server has subscribed us. If the channel was left and
// joined again meanwhile, only the last confirmation counts.
func (h *hub) confirm(s *session, channel string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.pause = 0
	if h.cur != s {
		return
	}
	if s.pending[channel]--; s.pending[channel] > 0 {
		return
	}
	delete(s.pending, channel)
	t := h.topics[channel]
	if t == nil {
		return
	}
	if !t.isReady {
		t.isReady = true
		close(t.ready)
	}
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
	var refusal redis.Error
	if refused := errors.As(err, &refusal) && isPermanent(err); refused || h.cluster != nil {
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
		if t.isReady {
			t.isReady, t.ready = false, make(chan struct{})
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

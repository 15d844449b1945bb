package redispubsub

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/distlock/locker/internal/redisconn"
	"github.com/redis/go-redis/v9"
)

// subscriber has the subscriptions at one server, all on one connection. After any trouble a
// new connection subscribes to everything anew, and all listeners are called, since messages
// may have been missed.
type subscriber struct {
	client  *redis.Client
	cluster *redis.ClusterClient // or nil
	sharded bool

	mu            sync.Mutex
	subscriptions map[string]*subscription // by channel
	conn          *connection              // nil: there is none, or reconnect will make one
	reconnect     *time.Timer
	idle          *time.Timer
	pause         time.Duration // before the last reconnect
	refusal       error
	refusedUntil  time.Time // until when refusal is believed
	closed        bool
}

// subscription is a channel with listeners.
type subscription struct {
	listeners map[*listener]struct{}
	ready     chan struct{} // closed, and nil, when subscribed or when err is set
	err       error
}

// subscribed wakes the callers that wait for the subscription.
func (sub *subscription) subscribed() {
	if sub.ready != nil {
		close(sub.ready)
		sub.ready = nil
	}
}

// notify calls the listeners; payload is "" where messages may have been missed.
func (sub *subscription) notify(payload string) {
	for l := range sub.listeners {
		l.message(payload)
	}
}

// fail ends the subscription, which is off the subscriber's map: no message comes any more.
// The subscriber's mutex is held.
func (sub *subscription) fail(err error) {
	sub.err = err
	sub.subscribed()
	for l := range sub.listeners {
		l.ended()
	}
}

// listener is one listener of a channel. Its functions are called under s.mu.
type listener struct {
	s       *subscriber
	channel string
	message func(payload string)
	ended   func() // no message comes any more
}

// Close implements [io.Closer].
func (l *listener) Close() error {
	l.s.remove(l)
	return nil
}

// listen returns when the server has confirmed the subscription to l's channel.
func (s *subscriber) listen(ctx context.Context, l *listener) error {
	sub, ready, err := s.add(l)
	if err != nil {
		return err
	}
	return s.confirmed(ctx, l, sub, ready)
}

// add begins to subscribe to l's channel. ready is closed when the server has confirmed, or refused, it;
// nil: it has.
func (s *subscriber) add(l *listener) (sub *subscription, ready <-chan struct{}, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return nil, nil, redis.ErrClosed
	case time.Now().Before(s.refusedUntil):
		return nil, nil, s.refusal
	}
	sub = s.subscriptions[l.channel]
	if sub == nil {
		sub = &subscription{listeners: make(map[*listener]struct{}), ready: make(chan struct{})}
		s.subscriptions[l.channel] = sub
		if s.conn != nil {
			s.enqueue(command{subscribe: true, channel: l.channel})
		}
	}
	sub.listeners[l] = struct{}{}
	if s.idle != nil {
		s.idle.Stop()
		s.idle = nil
	}
	if s.conn == nil && s.reconnect == nil {
		s.connect()
	}
	if sub.ready == nil {
		return sub, nil, nil
	}
	return sub, sub.ready, nil
}

// confirmed waits for what add has begun.
func (s *subscriber) confirmed(ctx context.Context, l *listener, sub *subscription, ready <-chan struct{}) error {
	if ready == nil {
		return nil
	}
	select {
	case <-ready:
	case <-ctx.Done():
		s.remove(l)
		return ctx.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return sub.err
}

// remove takes a listener off its channel, and unsubscribes after the last.
func (s *subscriber) remove(l *listener) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sub := s.subscriptions[l.channel]
	if sub == nil {
		return
	}
	if _, ok := sub.listeners[l]; !ok { // its subscription failed, and this is another one
		return
	}
	delete(sub.listeners, l)
	if len(sub.listeners) > 0 {
		return
	}
	delete(s.subscriptions, l.channel)
	if s.conn != nil {
		s.enqueue(command{channel: l.channel})
	}
	s.closeWhenIdle()
}

// closeWhenIdle closes the connection in a while if there is no subscription then; s.mu is
// held.
func (s *subscriber) closeWhenIdle() {
	if len(s.subscriptions) == 0 && s.idle == nil {
		s.idle = time.AfterFunc(idleTimeout, s.closeIdle)
	}
}

func (s *subscriber) closeIdle() {
	s.mu.Lock()
	s.idle = nil
	var old *connection
	if len(s.subscriptions) == 0 {
		old = s.detach()
	}
	s.mu.Unlock()
	old.close()
}

func (s *subscriber) close() {
	s.mu.Lock()
	s.closed = true
	for _, sub := range s.subscriptions {
		sub.fail(redis.ErrClosed)
	}
	s.subscriptions = nil
	old := s.detach()
	if s.idle != nil {
		s.idle.Stop()
	}
	s.mu.Unlock()
	old.close()
}

// detach detaches the connection, which the caller closes outside s.mu.
func (s *subscriber) detach() *connection {
	old := s.conn
	s.conn = nil
	if s.reconnect != nil {
		s.reconnect.Stop()
		s.reconnect = nil
	}
	return old
}

// connect begins a connection with all subscriptions; s.mu is held.
func (s *subscriber) connect() {
	c := &connection{pubsub: s.client.Subscribe(context.Background()), pending: make(map[string]int), writing: true}
	s.conn = c
	for channel := range s.subscriptions {
		s.enqueue(command{subscribe: true, channel: channel})
	}
	go func() {
		if s.write(c) {
			s.read(c)
		}
	}()
}

// received calls the listeners of a channel on which a message has come. An empty message is nothing that a strategy,
// Redisson or the server sends, and must not be taken for a new connection.
func (s *subscriber) received(channel, payload string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if sub := s.subscriptions[channel]; sub != nil && payload != "" {
		sub.notify(payload)
	}
}

// confirm notes that the server has subscribed us. If the channel was left and joined again
// meanwhile, only the last confirmation counts.
func (s *subscriber) confirm(c *connection, channel string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pause = 0
	if s.conn != c {
		return
	}
	c.answered(channel)
	if c.pending[channel]--; c.pending[channel] > 0 {
		return
	}
	delete(c.pending, channel)
	sub := s.subscriptions[channel]
	if sub == nil {
		return
	}
	sub.subscribed()
	sub.notify("")
}

// fail closes the connection and makes another one a little later, not all processes at the
// same time. Listeners are called when the new one stands: messages may be received again
// then.
func (s *subscriber) fail(c *connection, err error) {
	s.mu.Lock()
	if s.conn != c {
		s.mu.Unlock()
		c.close()
		return
	}
	old := s.detach()
	if refused := redisconn.IsRefusal(err); refused || s.cluster != nil {
		if refused {
			// No permission, no such command: we do not ask again for a while.
			s.refusal, s.refusedUntil = err, time.Now().Add(refusalLasts)
		} else {
			// The slot may have another node by now: whoever listens asks again.
			s.cluster.ReloadState(context.Background())
		}
		for channel, sub := range s.subscriptions {
			sub.fail(err)
			delete(s.subscriptions, channel)
		}
		s.mu.Unlock()
		old.close()
		return
	}
	for _, sub := range s.subscriptions {
		if sub.ready == nil {
			sub.ready = make(chan struct{})
		}
	}
	if len(s.subscriptions) > 0 && !s.closed {
		s.pause = min(max(reconnectFactor*s.pause, reconnectMin), reconnectMax)
		s.reconnect = time.AfterFunc(s.pause/2+rand.N(s.pause/2), s.connectAgain)
	}
	s.mu.Unlock()
	old.close()
}

func (s *subscriber) connectAgain() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reconnect = nil
	if s.conn == nil && !s.closed && len(s.subscriptions) > 0 {
		s.connect()
	}
}

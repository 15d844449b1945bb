package redisdriver

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/distlock/locker/driver"
	"github.com/redis/go-redis/v9"
)

// Signals are the releases a strategy tells of by pub/sub, on a channel for each
// lock key that is named as Redisson names it.
//
// All watches of a Locker share one connection (on a cluster one a node), which
// is there only while a caller waits.
type Signals struct {
	d      *Driver
	prefix string

	mu      sync.Mutex
	hubs    map[string]*hub // by node; "" if there is but one
	closed  bool
	sharded bool          // on a cluster, once known
	probing chan struct{} // closed when the probe under way ends; nil: none
	probed  bool          // or told by Set
}

var errNoSignals = errors.New("this Redis client cannot be made to subscribe")

// ShardedPubSub is an option of strategies with Signals: whether those of a cluster are
// sharded, whatever the cluster can.
type ShardedPubSub bool

// Set says how the releases of a cluster are told. It is called before all else.
func (s *Signals) Set(o ShardedPubSub) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, cluster := s.d.c.control.(*redis.ClusterClient)
	s.sharded, s.probed = cluster && bool(o), true
}

// NewSignals makes the Signals of d, on channels that begin with prefix.
func (d *Driver) NewSignals(prefix string) *Signals {
	s := &Signals{d: d, prefix: prefix, hubs: make(map[string]*hub)}
	d.signals = s
	s.probe()
	return s
}

// Channel is the channel of a lock key and the command that publishes to it:
// SPUBLISH on a cluster of Redis 7 or newer, PUBLISH elsewhere, as Redisson has
// it. A name whose Redisson channel would lie in another slot of a cluster, where
// a script may not publish, gets one of our own.
func (s *Signals) Channel(key string) (channel, publish string) {
	s.probe()
	if strings.Contains(key, "{") {
		channel = s.prefix + key
	} else {
		channel = s.prefix + "{" + key + "}"
	}
	s.mu.Lock()
	sharded := s.sharded
	s.mu.Unlock()
	if !sharded {
		return channel, "PUBLISH"
	}
	if Slot(channel) != Slot(key) {
		channel = AuxKey("locker:channel:", key)
	}
	return channel, "SPUBLISH"
}

// asUsual reports whether the scripts know the channel of a lock key, and the command.
func (s *Signals) asUsual(key string) bool {
	s.probe()
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.sharded && !strings.Contains(key, "{")
}

// probe asks a cluster once whether it has sharded pub/sub, in the background: a
// release must not wait for it. (One that comes before the answer is published in
// vain at worst, and a waiter looks about once a second.) It returns nil when the
// answer is known.
func (s *Signals) probe() <-chan struct{} {
	cluster, ok := s.d.c.control.(*redis.ClusterClient)
	if !ok || cluster.Options().ClusterSlots != nil {
		return nil // or servers that are no cluster, used like one
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.probed || s.closed {
		return nil
	}
	if s.probing == nil {
		done := make(chan struct{})
		s.probing = done
		go func() {
			defer close(done)
			ctx, cancel := context.WithTimeout(context.Background(), controlTimeout)
			defer cancel()
			node, err := cluster.MasterForKey(ctx, "")
			if err == nil {
				err = node.PubSubShardNumSub(ctx).Err()
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			s.probing = nil
			if s.probed {
				return
			}
			s.sharded = err == nil
			s.probed = err == nil || isRefusal(err)
		}()
	}
	return s.probing
}

// chanWatch implements [driver.Watch] on a channel.
type chanWatch struct {
	io.Closer
	c chan struct{}
}

func (w chanWatch) C() <-chan struct{} { return w.c }
func (w chanWatch) Close()             { _ = w.Closer.Close() }

// Watch implements [driver.Notifier].
func (s *Signals) Watch(ctx context.Context, key string) (driver.Watch, error) {
	c := make(chan struct{}, 1)
	signal := func() {
		select {
		case c <- struct{}{}:
		default:
		}
	}
	w, err := s.Listen(ctx, key, signal, func() { close(c) })
	if err != nil {
		return nil, err
	}
	return chanWatch{w, c}, nil
}

// Listen has signal called for each release of key, and ended when that cannot be
// any more, until the Closer is closed. Neither may block. It returns once the
// server has confirmed the subscription.
func (s *Signals) Listen(ctx context.Context, key string, signal, ended func()) (io.Closer, error) {
	if probing := s.probe(); probing != nil {
		select {
		case <-probing:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	channel, publish := s.Channel(key)
	h, err := s.hubOf(ctx, key, publish == "SPUBLISH")
	if err != nil {
		return nil, err
	}
	w, err := h.watch(ctx, &watch{channel: channel, signal: signal, ended: ended})
	if err != nil {
		return nil, err
	}
	return w, nil
}

func (s *Signals) hubOf(ctx context.Context, key string, sharded bool) (*hub, error) {
	client, err := s.d.c.node(ctx, key)
	if err != nil {
		return nil, err
	}
	if client == nil {
		return nil, errNoSignals
	}
	cluster, ok := s.d.c.control.(*redis.ClusterClient)
	node := ""
	if ok {
		node = client.Options().Addr
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, redis.ErrClosed
	}
	h := s.hubs[node]
	if h != nil && (h.client != client || h.sharded != sharded) {
		// The node was away, and the cluster client has closed its connections; or it was
		// not known yet how releases are told.
		go h.close()
		h = nil
	}
	if h == nil {
		h = &hub{client: client, cluster: cluster, sharded: sharded, topics: make(map[string]*topic)}
		s.hubs[node] = h
	}
	return h, nil
}

// Close ends all watches and what serves them.
func (s *Signals) Close() {
	s.mu.Lock()
	s.closed = true
	hubs, probing := s.hubs, s.probing
	s.hubs = nil
	s.mu.Unlock()
	done := make(chan struct{})
	go func() { // a connection that is being opened takes its time
		defer close(done)
		for _, h := range hubs {
			h.close()
		}
		if probing != nil {
			<-probing
		}
	}()
	WaitFor(done, hubsClose)
}

const (
	hubsClose    = 200 * time.Millisecond // is waited for
	hubIdle      = 500 * time.Millisecond // how long a connection outlives its last watch
	pingEvery    = 3 * time.Second        // of silence; no answer to it within as much is a dead connection
	hubRefusal   = 30 * time.Second       // how long a server's refusal is believed
	hubPauseMin  = 50 * time.Millisecond  // before connecting again
	hubPauseMax  = time.Second
	hubPauseStep = 2
)

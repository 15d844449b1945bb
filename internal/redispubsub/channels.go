package redispubsub

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/distlock/locker/internal/bound"
	"github.com/distlock/locker/internal/redisconn"
	"github.com/distlock/locker/internal/wake"
	"github.com/redis/go-redis/v9"
)

// Channels are the channels of keys, and the subscriptions to them.
type Channels struct {
	prefix string
	*deployment
}

// deployment has the subscriptions at the servers of a deployment, whatever their channels'
// prefix.
type deployment struct {
	conn *redisconn.Conn

	mu          sync.Mutex
	subscribers map[string]*subscriber // by node; "" if there is but one
	closed      bool
	sharded     bool          // pub/sub is sharded: on a cluster, once known
	probing     chan struct{} // closed when the probe in flight ends; nil: there is none
	probed      bool          // sharded is known, or set
}

var errUnknown = errors.New("the cluster has not answered whether it has sharded pub/sub")

var errNoSubscriptions = fmt.Errorf("this Redis client cannot be made to subscribe: %w", errors.ErrUnsupported)

// New makes the Channels of a deployment. Their names begin with prefix.
func New(conn *redisconn.Conn, prefix string) *Channels {
	c := &Channels{prefix, &deployment{conn: conn, subscribers: make(map[string]*subscriber)}}
	c.probe()
	return c
}

// With returns the Channels whose names begin with prefix, on the same connections. To close
// one closes both.
func (c *Channels) With(prefix string) *Channels { return &Channels{prefix, c.deployment} }

// SetSharded says whether pub/sub is sharded, if the deployment is a cluster, whatever the
// cluster can. It is called before all else.
func (c *deployment) SetSharded(sharded bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sharded, c.probed = sharded && c.conn.Cluster() != nil, true
}

// Of returns the channel of a key and the command that publishes to it: SPUBLISH on a
// cluster of Redis 7 or newer, PUBLISH elsewhere. Names are like Redisson's. One that would
// lie in another slot of a cluster, where a script may not publish, is replaced by one of
// our own.
func (c *Channels) Of(key string) (channel, publish string) {
	c.probe()
	if strings.Contains(key, "{") {
		channel = c.prefix + key
	} else {
		channel = c.prefix + "{" + key + "}"
	}
	if !c.isSharded() {
		return channel, "PUBLISH"
	}
	if redisconn.Slot(channel) != redisconn.Slot(key) {
		channel = redisconn.AuxKey("locker:channel:", key)
	}
	return channel, "SPUBLISH"
}

// IsDefault reports whether the channel of a key is prefix{key} and PUBLISH publishes to it.
func (c *Channels) IsDefault(key string) bool {
	c.probe()
	return !c.isSharded() && !strings.Contains(key, "{")
}

func (c *deployment) isSharded() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.sharded
}

// probe asks a cluster once whether it has sharded pub/sub, in the background: whoever
// publishes must not wait for it. (A message that is published before the answer is lost at
// worst.) It returns nil when the answer is known.
func (c *deployment) probe() <-chan struct{} {
	cluster := c.conn.Cluster()
	if cluster == nil || cluster.Options().ClusterSlots != nil {
		return nil // or servers that are no cluster, used like one
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.probed || c.closed {
		return nil
	}
	if c.probing == nil {
		done := make(chan struct{})
		c.probing = done
		go func() {
			defer close(done)
			c.askSharded(cluster)
		}()
	}
	return c.probing
}

// askSharded sets sharded by what the cluster answers. It may be asked again later if it
// does not answer.
func (c *deployment) askSharded(cluster *redis.ClusterClient) {
	ctx, cancel := context.WithTimeout(context.Background(), commandTimeout)
	defer cancel()
	node, err := cluster.MasterForKey(ctx, "")
	if err == nil {
		err = node.PubSubShardNumSub(ctx).Err()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.probing = nil
	if c.probed {
		return
	}
	c.sharded = err == nil
	c.probed = err == nil || redisconn.IsRefusal(err)
}

// Watch receives when a message on its channel has come, or may have been missed. Its C is
// closed when no more can come.
type Watch struct {
	wake.Signal
	listener io.Closer
}

// Close ends the Watch.
func (w *Watch) Close() { _ = w.listener.Close() }

// Watch returns when the server has confirmed the subscription to the channel of key.
func (c *Channels) Watch(ctx context.Context, key string) (*Watch, error) {
	messages := wake.New()
	listener, err := c.Listen(ctx, key, func(string) { messages.Send() }, func() { close(messages) })
	if err != nil {
		return nil, err
	}
	return &Watch{messages, listener}, nil
}

// Listen calls message for each message on the channel of key, and with "" where some may
// have been missed; and ended when no more can come, until the Closer is closed. Neither may
// block. It returns when the server has confirmed the subscription.
func (c *Channels) Listen(ctx context.Context, key string, message func(payload string), ended func()) (io.Closer, error) {
	if err := c.known(ctx); err != nil {
		return nil, err
	}
	if c.probe() != nil { // it has failed, and goes on: to listen in the wrong way is to hear nothing
		return nil, errUnknown
	}
	channel, publish := c.Of(key)
	s, err := c.subscriber(ctx, key, publish == "SPUBLISH")
	if err != nil {
		return nil, err
	}
	l := &listener{s: s, channel: channel, message: message, ended: ended}
	if err := s.listen(ctx, l); err != nil {
		return nil, err
	}
	return l, nil
}

// subscriber returns the subscriber at key's node.
func (c *deployment) subscriber(ctx context.Context, key string, sharded bool) (*subscriber, error) {
	client, err := c.conn.Node(ctx, key)
	if err != nil {
		return nil, err
	}
	if client == nil {
		return nil, errNoSubscriptions
	}
	cluster, node := c.conn.Cluster(), ""
	if cluster != nil {
		node = client.Options().Addr
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, redis.ErrClosed
	}
	s := c.subscribers[node]
	if s != nil && (s.client != client || s.sharded != sharded) {
		// The node was away, and the cluster client has closed its connections; or it was
		// not known yet whether pub/sub is sharded.
		go s.close()
		s = nil
	}
	if s == nil {
		s = &subscriber{client: client, cluster: cluster, sharded: sharded, subscriptions: make(map[string]*subscription)}
		c.subscribers[node] = s
	}
	return s, nil
}

// Publish sends payload, which is not "", to those who listen on the channel of key.
func (c *Channels) Publish(ctx context.Context, key, payload string) error {
	if err := c.known(ctx); err != nil {
		return err
	}
	channel, publish := c.Of(key)
	return c.conn.Publish(ctx, channel, payload, publish == "SPUBLISH")
}

// known waits until it is known whether pub/sub is sharded, or a probe has failed.
func (c *deployment) known(ctx context.Context) error {
	if probing := c.probe(); probing != nil {
		select {
		case <-probing:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// Close ends all subscriptions.
func (c *deployment) Close() {
	c.mu.Lock()
	c.closed = true
	subscribers, probing := c.subscribers, c.probing
	c.subscribers = nil
	c.mu.Unlock()
	done := make(chan struct{})
	go func() { // a connection that is being made takes its time
		defer close(done)
		for _, s := range subscribers {
			s.close()
		}
		if probing != nil {
			<-probing
		}
	}()
	bound.Sleep(context.Background(), done, closeTimeout)
}

const (
	commandTimeout  = 2 * time.Second        // of one (un)subscribe command
	closeTimeout    = 200 * time.Millisecond // how long Close waits
	idleTimeout     = 500 * time.Millisecond // how long a connection outlives its last listener
	pingEvery       = 3 * time.Second        // of silence; a connection that leaves it unanswered for as long is dead
	refusalLasts    = 30 * time.Second       // how long a server's refusal is believed
	reconnectMin    = 50 * time.Millisecond  // the pauses before connecting again
	reconnectMax    = time.Second
	reconnectFactor = 2
)

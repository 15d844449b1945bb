package redisdriver

import (
	"context"
	"net"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"github.com/distlock/locker"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

const (
	// controlPool is the most connections renewal, release and clean-up open.
	controlPool = 2*mostBatches + 4
	// controlTimeout is how long a command may take, and the making of a connection.
	controlTimeout = 2 * time.Second
	// usualTimeout is the longest default of go-redis. A caller has chosen what is longer.
	usualTimeout = 5 * time.Second
	// The buffers of a connection: a batch is a few KiB, its answers are less.
	readBuffer, writeBuffer = 8 << 10, 16 << 10
)

// clients are the ways to the server. See the package comment.
type clients struct {
	given   redis.UniversalClient // the caller's, never closed here
	control redis.UniversalClient // private, or on the caller's connections
	copied  bool                  // private

	// Of each kind there is one lane for a server, or for a node of a cluster: renewals
	// do not wait behind releases.
	commands lanes
	renewals lanes
	aside    lane        // of commands that go by themselves
	known    atomic.Bool // the client has learnt about the cluster
	end      func()      // ends what runs beside the lanes; nil: nothing does
}

// lanes are by the server's client.
type lanes struct {
	byClient sync.Map // *redis.Client to *lane
	one      *lane    // where there is but one; nil: each command goes by itself
}

func newClients(rdb redis.UniversalClient) (*clients, error) {
	if v := reflect.ValueOf(rdb); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		return nil, &nilClientError{}
	}
	switch c := rdb.(type) {
	case *redis.Client:
		return newClientsOf(c, dialerOf(c)), nil
	case *redis.ClusterClient:
		o := privateClusterOptions(c.Options())
		o.OnConnect, o.ClientName = greetingOf(o.ClientName, o.OnConnect).by(o.Protocol), ""
		return &clients{given: rdb, control: redis.NewClusterClient(o), copied: true}, nil
	}
	return &clients{given: rdb, control: rdb}, nil
}

// newClientsOf has connections of our own made by dial. Without it the caller's serve.
func newClientsOf(c *redis.Client, dial func(ctx context.Context, network, addr string) (net.Conn, error)) *clients {
	made := &clients{given: c}
	if dial == nil {
		to := view(c)
		made.control, made.commands.one, made.renewals.one = to, &lane{to: to, given: true}, &lane{to: to, given: true}
		return made
	}
	life, end := context.WithCancel(context.Background())
	o := privateOptions(c.Options())
	o.Dialer = dial
	hello := greetingOf(o.ClientName, o.OnConnect)
	o.OnConnect, o.ClientName = hello.by(o.Protocol), ""
	follow(life, o)
	to := redis.NewClient(o)
	made.control, made.copied, made.end = to, true, end
	made.commands.one, made.renewals.one = &lane{to: to}, &lane{to: to}
	if o.StreamingCredentialsProvider == nil { // which go-redis's pool is told by
		made.commands.one.direct = newDirect(life, to.Options(), hello)
	}
	return made
}

// view is a client on the caller's pool with options of its own.
func view(c *redis.Client) *redis.Client {
	v := c.WithTimeout(readTimeout(c.Options().ReadTimeout))
	o := v.Options()
	o.MaxRetries = 0
	o.ContextTimeoutEnabled = true
	return v
}

func (ls *lanes) close() {
	if ls.one != nil {
		ls.one.close()
		if d := ls.one.direct; d != nil {
			d.close()
		}
	}
	ls.byClient.Range(func(_, l any) bool {
		l.(*lane).close()
		return true
	})
}

// lane is the way of a command about key; nil if it goes by itself.
func (c *clients) lane(ctx context.Context, all *lanes, key string) (*lane, error) {
	cluster, ok := c.control.(*redis.ClusterClient)
	if !ok {
		return all.one, nil
	}
	node, err := c.node(ctx, key)
	if err != nil {
		return nil, err
	}
	if l, ok := all.byClient.Load(node); ok {
		return l.(*lane), nil
	}
	all.byClient.Range(func(client, l any) bool {
		if l.(*lane).isClosed() { // its node has left the cluster
			all.byClient.Delete(client)
		}
		return true
	})
	l, _ := all.byClient.LoadOrStore(node, &lane{to: node, cluster: cluster})
	return l.(*lane), nil
}

// node is nodeOf of our client, which may have to ask for the slots first.
func (c *clients) node(ctx context.Context, key string) (*redis.Client, error) {
	if _, ok := c.control.(*redis.ClusterClient); !ok || c.known.Load() {
		return nodeOf(ctx, c.control, key)
	}
	f := newFlight(func() (any, error) { return nodeOf(ctx, c.control, key) })
	if left, err := c.aside.do(ctx, f); left {
		return nil, notSent(err)
	} else if err != nil {
		return nil, err
	}
	c.known.Store(true)
	node := f.reply.(*redis.Client)
	f.free()
	return node, nil
}

// nodeOf is the client of the server that has key; nil if rdb is of a type of the user's.
func nodeOf(ctx context.Context, rdb redis.UniversalClient, key string) (*redis.Client, error) {
	switch rdb := rdb.(type) {
	case *redis.Client:
		return rdb, nil
	case *redis.ClusterClient:
		return rdb.MasterForKey(ctx, key)
	}
	return nil, nil
}

// apart returns another client like our own, for commands that keep their connections and
// may block for so long; nil if the caller's cannot be copied.
func (c *clients) apart(pool int, block time.Duration) redis.UniversalClient {
	if !c.copied {
		return nil
	}
	switch own := c.control.(type) {
	case *redis.Client:
		o := privateOptions(own.Options())
		o.ReadTimeout, o.PoolSize = o.ReadTimeout+block, pool
		return redis.NewClient(o)
	case *redis.ClusterClient:
		o := privateClusterOptions(own.Options())
		o.ReadTimeout, o.PoolSize = o.ReadTimeout+block, pool
		return redis.NewClusterClient(o)
	}
	return nil
}

// answers returns how long an answer is waited for.
func (c *clients) answers() time.Duration {
	switch own := c.control.(type) {
	case *redis.Client:
		return readTimeout(own.Options().ReadTimeout)
	case *redis.ClusterClient:
		return readTimeout(own.Options().ReadTimeout)
	}
	return controlTimeout
}

// privateOptions are like those of another client, for a small one of ours.
func privateOptions(from *redis.Options) *redis.Options {
	o := *from
	o.MaxRetries = -1
	o.ContextTimeoutEnabled = true
	o.DialTimeout, o.ReadTimeout = dialTimeout(o.DialTimeout), readTimeout(o.ReadTimeout)
	o.WriteTimeout, o.PoolTimeout = o.ReadTimeout, o.ReadTimeout
	o.ReadBufferSize, o.WriteBufferSize = readBuffer, writeBuffer
	o.DialerRetries = 1
	o.PoolSize = controlPool
	o.PipelinePoolSize = -1 // pipelines are what there is
	o.MinIdleConns, o.MaxIdleConns, o.MaxActiveConns, o.MaxConcurrentDials = 0, 0, 0, 0
	// A second client made of the same options must not share or repeat these.
	o.PushNotificationProcessor = nil
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	o.ClientSideCacheConfig, o.ClientSideCache = nil, nil
	o.Limiter = nil
	return &o
}

func privateClusterOptions(from *redis.ClusterOptions) *redis.ClusterOptions {
	o := *from
	o.MaxRetries = -1
	o.ContextTimeoutEnabled = true
	o.ReadOnly, o.RouteByLatency, o.RouteRandomly = false, false, false
	o.DialTimeout, o.ReadTimeout = dialTimeout(o.DialTimeout), readTimeout(o.ReadTimeout)
	o.WriteTimeout, o.PoolTimeout = o.ReadTimeout, o.ReadTimeout
	o.ReadBufferSize, o.WriteBufferSize = readBuffer, writeBuffer
	o.DialerRetries = 1
	o.PoolSize = controlPool
	o.MinIdleConns, o.MaxIdleConns, o.MaxActiveConns, o.MaxConcurrentDials = 0, 0, 0, 0
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	if o.ClusterSlots != nil {
		o.ClusterStateReloadInterval = askAgain
	}
	return &o
}

// relearn has a cluster client ask who has which slots, unless err is the answer
// of the right node. go-redis asks when it is told MOVED and when it is about to
// send a command once more; ours are sent once, and it would turn to a dead node
// for a minute.
func relearn(rdb any, err error) {
	c, _ := rdb.(*redis.ClusterClient)
	if c == nil || err == nil {
		return
	}
	if _, m, ok := answer(err); ok && m&unsure == 0 {
		return
	}
	c.ReloadState(context.Background())
}

// readTimeout returns how long an answer is waited for: the caller's timeout if it is longer
// than any default of go-redis, and ours otherwise.
func readTimeout(callers time.Duration) time.Duration {
	if callers > usualTimeout {
		return callers
	}
	return controlTimeout
}

// dialTimeout returns the caller's timeout for a new connection, or ours where the caller's
// is longer and may be a default of go-redis.
func dialTimeout(callers time.Duration) time.Duration {
	if callers > usualTimeout {
		return callers
	}
	return atMost(callers, controlTimeout)
}

// atMost bounds a timeout; go-redis takes those below 1 for none.
func atMost(d, most time.Duration) time.Duration {
	if d <= 0 {
		return most
	}
	return min(d, most)
}

func (c *clients) close() error {
	if c.end != nil {
		c.end()
	}
	c.commands.close()
	c.renewals.close()
	if !c.copied {
		return nil // the caller's
	}
	return c.control.Close()
}

type nilClientError struct{}

func (*nilClientError) Error() string {
	return "locker: " + locker.ErrInvalid.Error() + ": the Redis client is nil"
}
func (*nilClientError) Unwrap() error { return locker.ErrInvalid }

package redisconn

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

const (
	// controlPool is the most connections that the private client opens to a server.
	controlPool = 2*mostBatches + 4
	// controlTimeout is how long a command may take, and a dial.
	controlTimeout = 2 * time.Second
	// longestDefault is the longest default timeout of go-redis. A longer one is the user's choice.
	longestDefault = 5 * time.Second
	// The buffers of a connection: a batch is a few KiB, its answers are less.
	readBuffer, writeBuffer = 8 << 10, 16 << 10
)

// viewOf returns a client on the pool of c, with options of its own.
func viewOf(c *redis.Client) *redis.Client {
	view := c.WithTimeout(readTimeout(c.Options().ReadTimeout))
	o := view.Options()
	o.MaxRetries = 0
	o.ContextTimeoutEnabled = true
	return view
}

// dedicated returns another client like the private one, for commands that occupy their
// connections and may block for so long; nil if the user's client cannot be copied.
func (c *Conn) dedicated(pool int, block time.Duration) redis.UniversalClient {
	if !c.owned {
		return nil
	}
	greeting := c.greeting
	greeting.blocks = block > 0
	switch private := c.private.(type) {
	case *redis.Client:
		o := privateOptions(private.Options())
		o.ReadTimeout, o.PoolSize = o.ReadTimeout+block, pool
		o.OnConnect = greeting.onConnect(o.Protocol)
		return redis.NewClient(o)
	case *redis.ClusterClient:
		o := privateClusterOptions(private.Options())
		o.ReadTimeout, o.PoolSize = o.ReadTimeout+block, pool
		o.OnConnect = greeting.onConnect(o.Protocol)
		return redis.NewClusterClient(o)
	}
	return nil
}

// answerTimeout returns how long an answer is awaited.
func (c *Conn) answerTimeout() time.Duration {
	switch private := c.private.(type) {
	case *redis.Client:
		return readTimeout(private.Options().ReadTimeout)
	case *redis.ClusterClient:
		return readTimeout(private.Options().ReadTimeout)
	}
	return controlTimeout
}

// privateOptions returns the options of a private client like the one that has from.
func privateOptions(from *redis.Options) *redis.Options {
	o := *from
	o.MaxRetries = -1
	o.ContextTimeoutEnabled = true
	o.DialTimeout, o.ReadTimeout = dialTimeout(o.DialTimeout), readTimeout(o.ReadTimeout)
	o.WriteTimeout, o.PoolTimeout = o.ReadTimeout, o.ReadTimeout
	o.ReadBufferSize, o.WriteBufferSize = readBuffer, writeBuffer
	o.DialerRetries = 1
	o.PoolSize = controlPool
	o.PipelinePoolSize = -1 // no second pool: nearly all commands are pipelined
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
		o.ClusterStateReloadInterval = askEvery
	}
	return &o
}

// reloadTopology lets a cluster client fetch the slot table, unless err comes from the right
// node. go-redis does so after MOVED and before it sends a command again; ours are sent
// once, and it would go on using a dead node for a minute.
func reloadTopology(client any, err error) {
	c, _ := client.(*redis.ClusterClient)
	if c == nil || err == nil {
		return
	}
	if _, m, ok := serverError(err); ok && m&unsure == 0 {
		return
	}
	c.ReloadState(context.Background())
}

// readTimeout returns how long an answer is awaited: the user's timeout if it is longer than
// any default of go-redis, and ours otherwise.
func readTimeout(users time.Duration) time.Duration {
	if users > longestDefault {
		return users
	}
	return controlTimeout
}

// dialTimeout returns the user's timeout for a new connection, or ours where the user's is
// longer and may be a default of go-redis. (go-redis's pool sets no limit for a timeout below 0.)
func dialTimeout(users time.Duration) time.Duration {
	switch {
	case users > longestDefault:
		return users
	case users <= 0:
		return controlTimeout
	}
	return min(users, controlTimeout)
}

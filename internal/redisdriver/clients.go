package redisdriver

import (
	"context"
	"errors"
	"reflect"
	"time"

	"github.com/distlock/locker"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

const (
	// controlPool is the most connections renewal, release and clean-up open.
	controlPool    = 16
	controlTimeout = 2 * time.Second
)

// clients are the ways to the server. See the package comment.
type clients struct {
	given   redis.UniversalClient // the caller's, never closed here
	acquire processor             // the caller's, made to keep deadlines where that can be done
	control redis.UniversalClient // private, or the caller's
	runs    processor             // control for scripts
	private bool
}

func newClients(rdb redis.UniversalClient) (*clients, error) {
	if v := reflect.ValueOf(rdb); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		return nil, &nilClientError{}
	}
	switch c := rdb.(type) {
	case *redis.Client:
		// A view on the caller's pool with options of its own.
		view := c.WithTimeout(c.Options().ReadTimeout)
		o := view.Options()
		o.MaxRetries = 0
		o.ContextTimeoutEnabled = true

		control := redis.NewClient(privateOptions(c))
		return &clients{given: rdb, acquire: view, control: control, runs: control, private: true}, nil
	case *redis.ClusterClient:
		control := redis.NewClusterClient(privateClusterOptions(c))
		return &clients{given: rdb, acquire: c, control: control, runs: control, private: true}, nil
	}
	return &clients{given: rdb, acquire: rdb, control: rdb, runs: rdb}, nil
}

// batch lets scripts share round trips, on a client of one server.
func (c *clients) batch() {
	view, one := c.acquire.(*redis.Client)
	control, ours := c.control.(*redis.Client)
	if one && ours && c.private {
		c.acquire, c.runs = &batches{to: view}, &batches{to: control}
	}
}

// privateOptions are those of c, for a small client of ours.
func privateOptions(c *redis.Client) *redis.Options {
	o := *c.Options()
	o.MaxRetries = -1
	o.ContextTimeoutEnabled = true
	o.DialTimeout = atMost(o.DialTimeout, controlTimeout)
	o.ReadTimeout = atMost(o.ReadTimeout, controlTimeout)
	o.WriteTimeout = atMost(o.WriteTimeout, controlTimeout)
	o.PoolTimeout = controlTimeout
	o.DialerRetries = 1
	o.PoolSize = controlPool
	o.PipelinePoolSize = -1 // pipelines are what there is
	o.MinIdleConns, o.MaxIdleConns, o.MaxActiveConns = 0, 0, 0
	if o.Addr == failoverAddr {
		o.ConnMaxLifetime, o.ConnMaxLifetimeJitter = askAgain, 0
	}
	// A second client made of the same options must not share or repeat these.
	o.PushNotificationProcessor = nil
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	o.ClientSideCacheConfig, o.ClientSideCache = nil, nil
	o.Limiter = nil
	return &o
}

func privateClusterOptions(c *redis.ClusterClient) *redis.ClusterOptions {
	o := *c.Options()
	o.MaxRetries = -1
	o.ContextTimeoutEnabled = true
	o.ReadOnly, o.RouteByLatency, o.RouteRandomly = false, false, false
	o.DialTimeout = atMost(o.DialTimeout, controlTimeout)
	o.ReadTimeout = atMost(o.ReadTimeout, controlTimeout)
	o.WriteTimeout = atMost(o.WriteTimeout, controlTimeout)
	o.PoolTimeout = controlTimeout
	o.DialerRetries = 1
	o.PoolSize = controlPool
	o.MinIdleConns, o.MaxIdleConns, o.MaxActiveConns = 0, 0, 0
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	if o.ClusterSlots != nil {
		o.ClusterStateReloadInterval = askAgain
	}
	return &o
}

// go-redis asks the Sentinels for the master at each new connection.
// They leave the old one of an orderly failover a master for some ten seconds, in
// which it would go on renewing locks that others are granted on the new one. The
// caller's client drops its connections when the Sentinels announce a change; ours
// must not outlive such a change either.
const (
	failoverAddr = "FailoverClient" // as which go-redis makes clients that ask Sentinels
	askAgain     = 500 * time.Millisecond
)

// relearn has a cluster client ask who has which slots, unless err is the answer
// of the right node. go-redis asks when it is told MOVED and when it is about to
// send a command once more; ours are sent once, and it would turn to a dead node
// for a minute.
func relearn(rdb any, err error) {
	c, ok := rdb.(*redis.ClusterClient)
	if !ok || err == nil {
		return
	}
	var server redis.Error
	if errors.As(err, &server) {
		switch errorCode(server.Error()) {
		case "MOVED", "ASK", "READONLY", "CLUSTERDOWN", "MASTERDOWN", "LOADING":
		default:
			return
		}
	}
	c.ReloadState(context.Background())
}

// atMost bounds a timeout; go-redis takes those below 1 for none.
func atMost(d, most time.Duration) time.Duration {
	if d <= 0 {
		return most
	}
	return min(d, most)
}

func (c *clients) close() error {
	if c.private {
		return c.control.Close()
	}
	return nil
}

type nilClientError struct{}

func (*nilClientError) Error() string {
	return "locker: " + locker.ErrInvalid.Error() + ": the Redis client is nil"
}
func (*nilClientError) Unwrap() error { return locker.ErrInvalid }

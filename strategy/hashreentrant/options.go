package hashreentrant

import (
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/internal/redisdriver"
)

// WithReplicaAcks counts a grant or a renewal only when n replicas have confirmed it within
// timeout. n is 1 or more. timeout is 1 ms to 3 s. Choose less than the TTL: this option does not check it.
// See [setnx.WithReplicaAcks] for what it costs and what it buys.
//
// [setnx.WithReplicaAcks]: https://pkg.go.dev/github.com/distlock/locker/strategy/setnx#WithReplicaAcks
func WithReplicaAcks(n int, timeout time.Duration) locker.Option {
	return redisdriver.WithReplicaAcks(n, timeout)
}

type shardedPubSub bool

// WithShardedPubSub sets how releases are announced on a cluster: true by SPUBLISH and
// SSUBSCRIBE, false by PUBLISH and SUBSCRIBE. All processes that share locks must agree: a plain
// subscription receives nothing of SPUBLISH, and a sharded subscription nothing of PUBLISH. Then the
// waiter polls about once a second, and a Java client waits for the TTL. Default: sharded where the servers
// can, from Redis 7 on, as Redisson does since 3.22. false is for an older Redisson, or one
// that is configured so. Strategy blpop has no such option.
func WithShardedPubSub(sharded bool) locker.Option {
	return locker.WithDriverOption(shardedPubSub(sharded))
}

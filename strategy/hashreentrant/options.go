package hashreentrant

import (
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/internal/redisdriver"
)

// WithReplicaAcks counts a grant or a renewal only when n replicas have confirmed it within
// timeout. See [setnx.WithReplicaAcks] for what it costs and what it buys.
//
// [setnx.WithReplicaAcks]: https://pkg.go.dev/github.com/distlock/locker/strategy/setnx#WithReplicaAcks
func WithReplicaAcks(n int, timeout time.Duration) locker.Option {
	return redisdriver.WithReplicaAcks(n, timeout)
}

type shardedPubSub bool

// WithShardedPubSub says how releases are told and heard on a cluster: by SPUBLISH and
// SSUBSCRIBE, or by PUBLISH and SUBSCRIBE. All that share locks must agree: who has a plain
// subscription hears nothing of SPUBLISH, nor the other way round, and waits for about a
// second, or a Java client for the TTL. Default: sharded where the servers can, which is
// from Redis 7 on, as Redisson has it since 3.22; false is for an older Redisson, or one
// that is told not to; strategy blpop has no such option.
func WithShardedPubSub(sharded bool) locker.Option {
	return locker.WithDriverOption(shardedPubSub(sharded))
}

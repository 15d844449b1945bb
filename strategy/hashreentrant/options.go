package hashreentrant

import (
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/internal/redisdriver"
)

// WithReplicaAcks counts a grant or a renewal only when n replicas have confirmed it within
// timeout (Redis's WAIT). If they have not, the lock is undone and the attempt fails with
// [locker.ErrUnavailable], which says how many did; Lock goes on trying. A renewal has
// failed then, and is tried again while the lease lasts: while fewer than n replicas are in
// step nothing is granted, and leases end. It costs a second round trip for each grant, and
// for all renewals that are sent together. timeout is 1 ms to 3 s. Default: none are asked.
//
// A failover then loses a lock only if it promotes a replica that did not confirm it; with
// n the number of all replicas there is none.
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

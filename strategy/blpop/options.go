package blpop

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

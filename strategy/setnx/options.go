package setnx

import (
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/internal/redisdriver"
)

// WithReplicaAcks counts a grant or a renewal only when n replicas have confirmed it within
// timeout (Redis's WAIT). If they have not, the lock is undone and the attempt fails with
// [locker.ErrUnavailable], and the error shows how many did; Lock goes on trying. A renewal has
// failed then, and is tried again while the lease lasts: while fewer than n replicas are in
// step nothing is granted, and leases end. It costs a second round trip for each grant, and
// for all renewals that are sent together. n is 1 or more. timeout is 1 ms to 3 s. Choose less than the TTL: this
// option does not check it. Default: none are asked.
//
// A failover then loses a lock only if it promotes a replica that did not confirm it; with
// n the number of all replicas there is none.
func WithReplicaAcks(n int, timeout time.Duration) locker.Option {
	return redisdriver.WithReplicaAcks(n, timeout)
}

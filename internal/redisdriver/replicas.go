package redisdriver

import (
	"fmt"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/internal/redisconn"
)

// replicaAcks asks for grants and renewals to be confirmed by replicas.
type replicaAcks struct {
	n        int // 0: by none
	timeout  time.Duration
	grants   *redisconn.Replicas
	renewals *redisconn.Replicas // its own connections: renewals do not queue behind grants
}

// maxAckTimeout is below the time that the Locker gives an attempt.
const maxAckTimeout = 3 * time.Second

// WithReplicaAcks counts a grant or a renewal only when n replicas have confirmed it within
// timeout (WAIT): see the option of that name of each strategy.
func WithReplicaAcks(n int, timeout time.Duration) locker.Option {
	return locker.WithDriverOption(replicaAcks{n: n, timeout: timeout})
}

func (o replicaAcks) check() error {
	if o.n < 1 || o.timeout < time.Millisecond || o.timeout > maxAckTimeout {
		return fmt.Errorf("locker: %w: WithReplicaAcks(%d, %v): at least one replica, and from 1ms to %v", locker.ErrInvalid, o.n, o.timeout, maxAckTimeout)
	}
	return nil
}

// on returns o with the connections to the replicas' masters.
func (o replicaAcks) on(c *redisconn.Conn) replicaAcks {
	o.grants = c.NewReplicas(o.n, o.timeout, isGrant)
	o.renewals = c.NewReplicas(o.n, o.timeout, func(reply any) bool { return reply == int64(1) })
	return o
}

func isGrant(reply any) bool {
	r, _ := reply.([]any)
	return len(r) > 0 && r[0] == int64(1)
}

func (o replicaAcks) close() {
	if o.n > 0 {
		o.grants.Close()
		o.renewals.Close()
	}
}

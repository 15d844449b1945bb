package redisdriver

import (
	"context"
	"fmt"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/driver"
	"github.com/redis/go-redis/v9"
)

// replicaAcks asks for a grant to be confirmed by replicas.
type replicaAcks struct {
	n       int
	timeout time.Duration
	client  redis.UniversalClient
}

// ackPool is the most connections to a server that wait for its replicas. They are of a
// client of their own: others need not wait with them.
const ackPool = 16

// maxAckTimeout is below what the Locker gives an attempt.
const maxAckTimeout = 3 * time.Second

// WithReplicaAcks counts a grant only when n replicas have confirmed it within
// timeout (WAIT on the connection that acquired). If they have not, the lock is
// undone and the attempt fails with [locker.ErrUnavailable], saying how many did;
// Lock goes on trying. It costs a second round trip for each grant.
//
// It makes the loss of a lock by failover less likely, not impossible: a replica
// that did not confirm may be promoted, unless n is the number of all.
func WithReplicaAcks(n int, timeout time.Duration) locker.Option {
	return locker.WithDriverOption(replicaAcks{n: n, timeout: timeout})
}

func (o replicaAcks) check() error {
	if o.n < 1 || o.timeout < time.Millisecond || o.timeout > maxAckTimeout {
		return fmt.Errorf("locker: %w: WithReplicaAcks(%d, %v): at least one replica, and from 1ms to %v", locker.ErrInvalid, o.n, o.timeout, maxAckTimeout)
	}
	return nil
}

// runAcked runs the script and has what it granted confirmed.
func (d *Driver) runAcked(ctx context.Context, s *Script, req driver.Request, in input) (any, error) {
	client, err := nodeOf(ctx, d.acks.client, req.Key)
	if err != nil {
		return nil, classify(err)
	}
	if client == nil {
		return nil, &driver.StoreError{
			Err:       fmt.Errorf("replicas cannot be waited for on a %T", d.c.given),
			Permanent: true, NotApplied: true,
		}
	}
	// WAIT counts the writes of its own connection.
	conn := client.Conn()
	defer func() { _ = conn.Close() }()
	reply, err := s.run(ctx, conn, in)
	relearn(d.acks.client, err)
	if err != nil || !isGrant(reply) {
		return reply, err
	}
	n, err := conn.Wait(ctx, d.acks.n, d.acks.timeout).Result()
	if err != nil {
		return nil, classify(err)
	}
	if int(n) < d.acks.n {
		// Not NotApplied: the Locker takes the lock back.
		return nil, fmt.Errorf("%d of the %d replicas asked for confirmed the lock within %v", n, d.acks.n, d.acks.timeout)
	}
	return reply, nil
}

func isGrant(reply any) bool {
	r, _ := reply.([]any)
	return len(r) > 0 && r[0] == int64(1)
}

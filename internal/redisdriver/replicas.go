package redisdriver

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/driver"
	"github.com/redis/go-redis/v9"
)

// replicaAcks asks for grants and renewals to be confirmed by replicas.
type replicaAcks struct {
	n        int
	timeout  time.Duration
	grants   redis.UniversalClient
	renewals redis.UniversalClient // apart from grants, so as not to queue behind them
}

// ackPool is the most connections to a server that wait for its replicas with a grant.
// They are of a client of their own: others need not wait with them.
const ackPool = 16

// maxAckTimeout is below what the Locker gives an attempt.
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

// runAcked runs the script and has what it granted or renewed confirmed.
func (d *Driver) runAcked(ctx context.Context, all redis.UniversalClient, s *Script, key string, in input) (any, error) {
	client, err := nodeOf(ctx, all, key)
	if err != nil {
		return nil, classify(err)
	}
	if client == nil {
		return nil, &driver.StoreError{
			Err:       fmt.Errorf("replicas cannot be waited for on a %T", d.c.given),
			Permanent: true, NotApplied: true,
		}
	}
	// WAIT counts the writes of its own connection. A caller that leaves does not end the
	// script, so that its release can be sent behind it.
	conn := client.Conn()
	defer func() { _ = conn.Close() }()
	reply, err := s.run(context.WithoutCancel(ctx), conn, in)
	relearn(all, err)
	if err != nil || !isGrant(reply) && reply != int64(1) {
		return reply, err
	}
	n, err := conn.Wait(ctx, d.acks.n, d.acks.timeout).Result()
	if err != nil {
		return nil, classify(err)
	}
	if int(n) < d.acks.n {
		// Not NotApplied: the Locker takes the lock back, or renews it again.
		return nil, fmt.Errorf("%d of the %d replicas asked for confirmed the lock within %v", n, d.acks.n, d.acks.timeout)
	}
	return reply, nil
}

func isGrant(reply any) bool {
	r, _ := reply.([]any)
	return len(r) > 0 && r[0] == int64(1)
}

// confirm has the renewals of claims, which the server has answered, confirmed: for each
// node one of them is sent again. What replicas confirm, they confirm with all before it.
func (d *Driver) confirm(ctx context.Context, claims []driver.Claim) []error {
	errs := make([]error, len(claims))
	outcome := make(map[*redis.Client]error)
	for i, c := range claims {
		node, err := nodeOf(ctx, d.acks.renewals, c.Key)
		if err != nil {
			errs[i] = classify(err)
			continue
		}
		known := false
		if errs[i], known = outcome[node]; known {
			continue
		}
		f := d.flight(d.p.Renew, driver.Request{Claim: c, Fencing: c.Token != 0})
		reply, err := d.runAcked(ctx, d.acks.renewals, f.script, c.Key, f.in.plain())
		f.free()
		if err == nil {
			err = verdict(reply)
		}
		errs[i] = err
		if !errors.Is(err, locker.ErrLost) { // which is of this claim alone
			outcome[node] = err
		}
	}
	return errs
}

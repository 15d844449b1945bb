package redisdriver

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
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
	slots    chan struct{}         // for attempts: no more are under way at a time
}

// ackPool is the most connections to a server that wait for its replicas, with grants and
// with renewals. They are of clients of their own: others need not wait with them.
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

// runAcked runs the script and has what it granted confirmed.
func (d *Driver) runAcked(ctx context.Context, s *Script, key string, in input) (any, error) {
	client, err := nodeOf(ctx, d.acks.grants, key)
	switch {
	case err != nil:
		return nil, classify(err)
	case client == nil:
		return nil, d.noReplicas()
	}
	// It takes its place with the caller: an attempt whose caller has left is not sent.
	select {
	case d.acks.slots <- struct{}{}:
		defer func() { <-d.acks.slots }()
	case <-ctx.Done():
	}
	if err := ctx.Err(); err != nil {
		return nil, notSent(err)
	}
	// WAIT counts the writes of its own connection. A caller that leaves does not end the
	// script, so that its release can be sent behind it.
	conn := client.Conn()
	defer func() { _ = conn.Close() }()
	reply, err := s.run(context.WithoutCancel(ctx), conn, in)
	relearn(d.acks.grants, err)
	if err != nil || !isGrant(reply) {
		return reply, err
	}
	if err := d.awaitReplicas(ctx, conn); err != nil {
		return nil, err
	}
	return reply, nil
}

func isGrant(reply any) bool {
	r, _ := reply.([]any)
	return len(r) > 0 && r[0] == int64(1)
}

// renewAcked renews the claims of each node on one connection, and has that confirmed there:
// WAIT is about what its own connection has written, to the server that it has written to.
func (d *Driver) renewAcked(ctx context.Context, claims []driver.Claim, answer func(i int, err error)) {
	nodes := make(map[*redis.Client][]int)
	for i, c := range claims {
		switch node, err := nodeOf(ctx, d.acks.renewals, c.Key); {
		case err != nil:
			answer(i, classify(err))
		case node == nil:
			answer(i, d.noReplicas())
		default:
			nodes[node] = append(nodes[node], i)
		}
	}
	var all sync.WaitGroup
	for node, of := range nodes {
		all.Go(func() {
			batch := make([]input, len(of))
			for n, i := range of {
				f := d.flight(d.p.Renew, driver.Request{Claim: claims[i], Fencing: claims[i].Token != 0})
				batch[n] = f.in.plain()
				f.free()
			}
			f := d.flight(d.p.Renew, driver.Request{Claim: claims[of[0]]})
			f.run = func() (any, error) { return d.renewOn(ctx, node, false, batch), nil }
			reply, err := d.send(ctx, &d.c.renewals, f)
			errs, _ := reply.([]error)
			for n, i := range of {
				if err == nil {
					answer(i, errs[n])
				} else {
					answer(i, err)
				}
			}
		})
	}
	all.Wait()
}

// renewOn sends a batch of renewals to a node, asking first if a slot is on its way there,
// and waits for its replicas. What it is told to ask another node for, it asks that for.
func (d *Driver) renewOn(ctx context.Context, node *redis.Client, asking bool, batch []input) []error {
	conn := node.Conn()
	defer func() { _ = conn.Close() }()
	cmds := d.renewBy(ctx, conn, asking, batch)
	errs, renewed, elsewhere := make([]error, len(batch)), false, make(map[string][]int)
	for n, cmd := range cmds {
		switch err := cmd.Err(); {
		case err == nil:
			errs[n] = verdict(cmd.Val())
			renewed = renewed || errs[n] == nil
		case strings.HasPrefix(err.Error(), "ASK ") && !asking:
			addr := err.Error()[strings.LastIndexByte(err.Error(), ' ')+1:]
			elsewhere[addr] = append(elsewhere[addr], n)
			errs[n] = classify(err)
		default:
			relearn(d.acks.renewals, err)
			errs[n] = classify(err)
		}
	}
	if renewed {
		unconfirmed := d.awaitReplicas(ctx, conn)
		for n := range errs {
			errs[n] = cmp.Or(errs[n], unconfirmed)
		}
	}
	for addr, of := range elsewhere {
		if other := masterAt(ctx, d.acks.renewals, addr); other != nil {
			part := make([]input, len(of))
			for i, n := range of {
				part[i] = batch[n]
			}
			for i, err := range d.renewOn(ctx, other, true, part) {
				errs[of[i]] = err
			}
		}
	}
	return errs
}

// renewBy sends a batch of renewals on conn; those of a server that does not know the script
// a second time, with its source.
func (d *Driver) renewBy(ctx context.Context, conn *redis.Conn, asking bool, batch []input) []noRetry {
	cmds, left := make([]noRetry, len(batch)), make([]int, len(batch))
	for n := range left {
		left[n] = n
	}
	for _, command := range []func(context.Context, *redis.Cmd, input) noRetry{d.p.Renew.bySHA, d.p.Renew.bySource} {
		pipe := conn.Pipeline()
		for _, n := range left {
			if asking {
				pipe.Do(ctx, "asking")
			}
			cmds[n] = command(ctx, new(redis.Cmd), batch[n])
			_ = pipe.Process(ctx, cmds[n])
		}
		_, _ = pipe.Exec(ctx) // each command has its own error
		left = slices.DeleteFunc(left, func(n int) bool { return !isNoScript(cmds[n].Err()) })
		if len(left) == 0 {
			break
		}
	}
	return cmds
}

// masterAt is the client of the cluster's master at addr, or nil.
func masterAt(ctx context.Context, rdb redis.UniversalClient, addr string) (found *redis.Client) {
	cluster, ok := rdb.(*redis.ClusterClient)
	if !ok {
		return nil
	}
	var mu sync.Mutex
	_ = cluster.ForEachMaster(ctx, func(_ context.Context, c *redis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		if c.Options().Addr == addr {
			found = c
		}
		return nil
	})
	return found
}

// awaitReplicas is the error if too few replicas confirm what conn has written.
func (d *Driver) awaitReplicas(ctx context.Context, conn *redis.Conn) error {
	n, err := conn.Wait(ctx, d.acks.n, d.acks.timeout).Result()
	switch {
	case err != nil:
		return classify(err)
	case int(n) < d.acks.n:
		// Not NotApplied: the Locker takes the lock back, or renews it again.
		return fmt.Errorf("%d of the %d replicas asked for confirmed the lock within %v", n, d.acks.n, d.acks.timeout)
	}
	return nil
}

func (d *Driver) noReplicas() error {
	return &driver.StoreError{
		Err:       fmt.Errorf("replicas cannot be waited for on a %T", d.c.given),
		Permanent: true, NotApplied: true,
	}
}

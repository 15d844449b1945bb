package redisconn

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// Replicas sends commands and waits until replicas have confirmed what they wrote (WAIT). It
// has a dedicated client: other commands need not wait with its own.
type Replicas struct {
	conn    *Conn
	client  redis.UniversalClient // nil: the user's cannot be copied
	n       int
	timeout time.Duration
	wrote   func(reply any) bool // reports by the reply whether a command wrote something
	slots   sync.Map             // by the address of a node: a command of Do holds one until its connections are free
}

// ReplicaPool is the most connections that a Replicas opens to a server.
const ReplicaPool = 16

// NewReplicas makes a Replicas that waits for n of them, for timeout at most.
func (c *Conn) NewReplicas(n int, timeout time.Duration, wrote func(reply any) bool) *Replicas {
	return &Replicas{
		conn: c, client: c.dedicated(ReplicaPool, 0),
		n: n, timeout: timeout, wrote: wrote,
	}
}

// Do sends cmd, and waits for the confirmation.
func (r *Replicas) Do(ctx context.Context, cmd *Command) (any, error) {
	words := plain(cmd.Words)
	s, key := cmd.Script, cmd.Key
	cmd.run = func() (any, error) { return r.run(ctx, s, key, words) }
	return r.conn.Do(ctx, cmd)
}

func (r *Replicas) run(ctx context.Context, s *Script, key string, words []any) (any, error) {
	node, err := nodeOf(ctx, r.client, key)
	switch {
	case err != nil:
		return nil, classify(err)
	case node == nil:
		return nil, r.unsupported()
	}
	// The slot is taken with the caller: a command whose caller returns before it has a slot is not sent. A node whose
	// replicas are away keeps slots of another node only for commands that the other node has redirected to it (ASK).
	held, _ := r.slots.LoadOrStore(node.Options().Addr, make(chan struct{}, ReplicaPool))
	slots := held.(chan struct{})
	select {
	case slots <- struct{}{}:
	case <-ctx.Done():
		return nil, notSent(ctx.Err())
	}
	var waits sync.WaitGroup
	defer func() {
		go func() {
			waits.Wait()
			<-slots
		}()
	}()
	if err := ctx.Err(); err != nil {
		return nil, notSent(err)
	}
	one := r.runOn(ctx, node, []*Command{{Script: s, Words: words}}, &waits)[0]
	return one.reply, one.err
}

// result is the result of one command of many.
type result struct {
	reply any
	err   error
}

// DoAll sends cmds, and waits for the confirmations. It sends the commands to one node on one
// connection, and confirms them there: WAIT counts what its own connection has written, to the
// server that it has written to.
func (r *Replicas) DoAll(ctx context.Context, cmds []*Command, answer func(i int, reply any, err error)) {
	nodes := make(map[*redis.Client][]int)
	for i, cmd := range cmds {
		switch node, err := nodeOf(ctx, r.client, cmd.Key); {
		case err != nil:
			answer(i, nil, classify(err))
		case node == nil:
			answer(i, nil, r.unsupported())
		default:
			nodes[node] = append(nodes[node], i)
		}
	}
	var all sync.WaitGroup
	for node, indices := range nodes {
		all.Go(func() {
			batch := make([]*Command, len(indices)) // copies: DoAll may return before they are sent
			for n, i := range indices {
				batch[n] = &Command{Script: cmds[i].Script, Words: plain(cmds[i].Words)}
			}
			reply, err := r.conn.Do(ctx, newCommand(func() (any, error) {
				return r.runOn(ctx, node, batch, new(sync.WaitGroup)), nil
			}))
			results, _ := reply.([]result)
			for n, i := range indices {
				if err == nil {
					answer(i, results[n].reply, results[n].err)
				} else {
					answer(i, nil, err)
				}
			}
		})
	}
	all.Wait()
}

// runOn runs the commands of a batch on a node, and waits for the node's replicas. A caller that returns does not end
// the scripts, so that a later command can be ordered after them: they are on the wire by batchTimeout, or never will be.
func (r *Replicas) runOn(ctx context.Context, node *redis.Client, batch []*Command, waits *sync.WaitGroup) []result {
	sent, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.conn.unpipelined.batchTimeout())
	defer cancel()
	return r.send(ctx, sent, node, false, batch, waits)
}

// send sends the scripts until sent ends. Commands that the node redirects (ASK) go to the node that it names, with
// ASKING. WAIT counts the writes of its own connection. waits counts the WAITs under way. A WAIT keeps its connection
// until it is answered. Its caller may have returned by then.
func (r *Replicas) send(ctx, sent context.Context, node *redis.Client, asking bool, batch []*Command, waits *sync.WaitGroup) []result {
	conn := node.Conn()
	results, wrote, redirects := make([]result, len(batch)), false, make(map[string][]int)
	for n, cmd := range roundTripOn(sent, conn, asking, batch) {
		switch err := cmd.Err(); {
		case err == nil:
			results[n].reply = cmd.Val()
			wrote = wrote || r.wrote(cmd.Val())
		case strings.HasPrefix(err.Error(), "ASK ") && !asking:
			addr := err.Error()[strings.LastIndexByte(err.Error(), ' ')+1:]
			redirects[addr] = append(redirects[addr], n)
			results[n].err = classify(err)
		default:
			reloadTopology(r.client, err)
			results[n].err = classify(err)
		}
	}
	if !wrote {
		_ = conn.Close()
	} else {
		err := r.confirm(ctx, conn, waits)
		for n := range results {
			if results[n].err == nil && r.wrote(results[n].reply) {
				results[n].err = err
			}
		}
	}
	for addr, indices := range redirects {
		if other := masterAt(ctx, r.client, addr); other != nil {
			part := make([]*Command, len(indices))
			for i, n := range indices {
				part[i] = batch[n]
			}
			for i, result := range r.send(ctx, sent, other, true, part, waits) {
				results[indices[i]] = result
			}
		}
	}
	return results
}

// roundTripOn sends a batch on conn. Commands whose script the server does not know are sent
// again, with its source.
func roundTripOn(ctx context.Context, conn *redis.Conn, asking bool, batch []*Command) []noRetry {
	cmds, unsent := make([]noRetry, len(batch)), make([]int, len(batch))
	for n := range unsent {
		unsent[n] = n
	}
	for _, command := range []func(*Script, context.Context, *redis.Cmd, []any) noRetry{(*Script).bySHA, (*Script).bySource} {
		pipe := conn.Pipeline()
		for _, n := range unsent {
			if asking {
				pipe.Do(ctx, "asking")
			}
			cmds[n] = command(batch[n].Script, ctx, new(redis.Cmd), batch[n].Words)
			_ = pipe.Process(ctx, cmds[n])
		}
		_, err := pipe.Exec(ctx)
		for _, n := range unsent {
			cmds[n].unreached(err)
		}
		unsent = slices.DeleteFunc(unsent, func(n int) bool { return !isNoScript(cmds[n].Err()) })
		if len(unsent) == 0 {
			break
		}
	}
	return cmds
}

// masterAt returns the client of the cluster's master at addr, or nil.
func masterAt(ctx context.Context, client redis.UniversalClient, addr string) (found *redis.Client) {
	cluster, ok := client.(*redis.ClusterClient)
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

// confirm returns an error if too few replicas confirm what conn has written, or if ctx ends. It closes conn, perhaps
// after it has returned: a WAIT goes on without its caller. A connection with an unread answer would have to be closed.
// The next command would connect anew, which makes it late on a slow server.
func (r *Replicas) confirm(ctx context.Context, conn *redis.Conn, waits *sync.WaitGroup) error {
	if ctx.Err() != nil {
		_ = conn.Close()
		return unanswered(ctx.Err())
	}
	confirmed := make(chan error, 1)
	waits.Go(func() {
		err := r.wait(ctx, conn)
		_ = conn.Close()
		confirmed <- err
	})
	select {
	case err := <-confirmed:
		return err
	case <-ctx.Done():
		return unanswered(ctx.Err())
	}
}

// wait sends WAIT. The server ends the WAIT at the timeout, or soon after the deadline of ctx if that is earlier. wait
// does not end with ctx.
func (r *Replicas) wait(ctx context.Context, conn *redis.Conn) error {
	timeout := r.timeout
	if deadline, ok := ctx.Deadline(); ok {
		// Rounded up: a caller whose time is over learns that, and not that replicas are missing. A timeout of 0 has no end.
		timeout = min(timeout, max(0, time.Until(deadline).Truncate(time.Millisecond))+time.Millisecond)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout+controlTimeout)
	defer cancel()
	n, err := conn.Wait(ctx, r.n, timeout).Result()
	switch {
	case err != nil:
		return unconfirmed(err)
	case int(n) < r.n:
		// It is not NotApplied: the master has the write.
		return fmt.Errorf("%d of the %d replicas asked for confirmed the write within %v", n, r.n, timeout)
	}
	return nil
}

// unconfirmed returns the error of a WAIT that failed. The script before the WAIT was carried out, so the error is not
// NotApplied. A master may become a replica between the script and the WAIT: that passes.
func unconfirmed(err error) error {
	var known *Error
	if err = classify(err); !errors.As(err, &known) {
		return err
	}
	demoted := strings.Contains(known.Error(), "WAIT cannot be used")
	return &Error{Err: known.Err, Permanent: known.Permanent && !demoted}
}

func (r *Replicas) unsupported() error {
	return &Error{
		Err:       fmt.Errorf("replicas cannot be waited for on a %T", r.conn.user),
		Permanent: true, NotApplied: true,
	}
}

// Close closes the connections.
func (r *Replicas) Close() {
	if r.client != nil {
		_ = r.client.Close()
	}
}

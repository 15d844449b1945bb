package redisconn

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// batchTimeout returns how long a batch may take to be connected, sent and answered. No part
// of it is written later, so a command whose caller has returned is on the wire by then, or
// never will be.
func (p *pipeline) batchTimeout() time.Duration {
	if p.client == nil { // it sends no batches
		return controlTimeout + time.Second
	}
	o := p.client.Options()
	return max(dialTimeout(o.DialTimeout), readTimeout(o.ReadTimeout)) + time.Second
}

// resolveTimeout returns how long to wait for the result of an abandoned command: longer than
// a batch may take. A client that is not go-redis's own need not keep any timeout.
func (p *pipeline) resolveTimeout() time.Duration { return p.batchTimeout() + time.Second }

// send sends a batch and resolves its commands. Where the server does not know a script, the
// first command that runs it is sent again with its source, and the others follow it.
func (p *pipeline) send(batch []*Command) {
	deadline := time.Now().Add(p.batchTimeout())
	ctx, cancel := context.WithDeadline(context.Background(), deadline)
	defer cancel()
	roundTrip(ctx, p.client, batch, false)
	var unknown []*Command
	for _, c := range batch {
		if isNoScript(c.cmd.Err()) {
			unknown = append(unknown, c)
		}
	}
	if len(unknown) > 0 {
		roundTrip(ctx, p.client, unknown, true)
	}
	kept := batch[:0]
	for _, c := range batch {
		err := c.cmd.Err()
		if p.cluster != nil && isRedirect(err) {
			if errors.Is(err, redis.ErrClosed) {
				p.close()
			}
			go p.redirect(c, deadline)
			continue
		}
		reloadTopology(p.cluster, err)
		c.reply, c.err = c.cmd.Val(), p.classify(err)
		kept = append(kept, c)
	}
	p.resolve(kept)
}

// redirect sends c to the node that has its key by now.
func (p *pipeline) redirect(c *Command, deadline time.Time) {
	ctx, cancel := context.WithDeadline(context.Background(), deadline)
	defer cancel()
	c.reply, c.err = c.Script.run(ctx, p.cluster, plain(c.Words))
	p.resolve([]*Command{c})
}

// roundTrip sends commands and reads their answers. With teach, the first command of each
// script carries its source.
func roundTrip(ctx context.Context, client *redis.Client, cmds []*Command, teach bool) {
	taught := make(map[*Script]bool)
	for _, c := range cmds {
		if teach && !taught[c.Script] {
			taught[c.Script] = true
			c.cmd = c.Script.bySource(ctx, &c.store, c.Words)
		} else {
			c.cmd = c.Script.bySHA(ctx, &c.store, c.Words)
		}
	}
	if len(cmds) == 1 {
		cmds[0].cmd.SetErr(client.Process(ctx, cmds[0].cmd))
		return
	}
	pipe := client.Pipeline()
	for _, c := range cmds {
		_ = pipe.Process(ctx, c.cmd)
	}
	_, err := pipe.Exec(ctx)
	for _, c := range cmds {
		c.cmd.unreached(err)
	}
}

// classify adds to classify what only the pipeline knows: whether its client speaks to a
// cluster, and whether the pool is its own.
func (p *pipeline) classify(err error) error {
	if _, m, _ := serverError(err); m&clustered != 0 && p.cluster == nil {
		return &Error{
			Err:       fmt.Errorf("%w: the server is a node of a cluster; use a redis.ClusterClient", err),
			Permanent: true, NotApplied: true,
		}
	}
	if isContextEnd(err) && p.client != nil && !p.shared {
		return notSent(err) // go-redis looks at the context only while it waits for a connection, before it writes
	}
	return classify(err)
}

func isContextEnd(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

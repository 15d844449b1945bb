package redisconn

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// closeBudget is how long Close waits for abandoned commands.
const closeBudget = 700 * time.Millisecond

// Conn sends commands to a deployment. See the package comment.
type Conn struct {
	user    redis.UniversalClient // the user's client, which the user closes
	private redis.UniversalClient // the private client; or user, or a view of it
	owned   bool                  // private has connections of its own

	greeting greeting // of the private client's connections

	commands    pipelines
	urgent      pipelines
	unpipelined pipeline    // runs the commands that no pipeline sends
	slotsKnown  atomic.Bool // the private client has fetched the cluster's slot table
	stop        func()      // ends what runs beside the pipelines; nil: nothing does

	abandoned abandonedCommands
	closed    atomic.Bool
}

// pipelines are the pipelines to the servers of a deployment.
type pipelines struct {
	byClient sync.Map  // *redis.Client to *pipeline, on a cluster
	single   *pipeline // to the only server; nil: there are several, or no pipeline
}

// Open makes a Conn to the deployment that rdb, which is not nil, speaks to.
func Open(rdb redis.UniversalClient) *Conn {
	switch user := rdb.(type) {
	case *redis.Client:
		return openSingle(user, dialerOf(user))
	case *redis.ClusterClient:
		o := privateClusterOptions(user.Options())
		greeting := greetingOf(o.ClientName, o.OnConnect)
		o.OnConnect, o.ClientName = greeting.onConnect(o.Protocol), ""
		if o.Dialer != nil {
			o.Dialer = takingDeadlines(o.Dialer)
		}
		return &Conn{user: rdb, private: redis.NewClusterClient(o), owned: true, greeting: greeting}
	}
	return &Conn{user: rdb, private: rdb}
}

// openSingle makes a Conn whose private client connects by dial. If dial is nil, the user's
// connections serve.
func openSingle(user *redis.Client, dial dialer) *Conn {
	c := &Conn{user: user}
	if dial == nil {
		view := viewOf(user)
		c.private = view
		c.commands.single, c.urgent.single = &pipeline{client: view, shared: true}, &pipeline{client: view, shared: true}
		return c
	}
	life, stop := context.WithCancel(context.Background())
	o := privateOptions(user.Options())
	o.Dialer = takingDeadlines(dial)
	greeting := greetingOf(o.ClientName, o.OnConnect)
	o.OnConnect, o.ClientName = greeting.onConnect(o.Protocol), ""
	followMaster(life, o)
	private := redis.NewClient(o)
	c.private, c.owned, c.greeting, c.stop = private, true, greeting, stop
	c.commands.single, c.urgent.single = &pipeline{client: private}, &pipeline{client: private}
	if o.StreamingCredentialsProvider == nil { // only go-redis's pool hears of new credentials
		c.commands.single.fast = newFastPath(life, private.Options(), greeting)
	}
	return c
}

// Do sends cmd and returns its reply. It returns an error when ctx ends first;
// [Command.Abandoned] reports whether the server may still carry cmd out then.
func (c *Conn) Do(ctx context.Context, cmd *Command) (reply any, err error) {
	if err := ctx.Err(); err != nil {
		return nil, notSent(err)
	}
	// Urgent commands have a pipeline without a fast path.
	if p := c.commands.single; p != nil && p.fast != nil && !cmd.Urgent && cmd.run == nil && !c.closed.Load() {
		if done, err := p.sendFast(ctx, cmd); done && err == nil {
			return cmd.reply, nil
		} else if done {
			return c.finish(ctx, cmd, err)
		}
	}
	p, err := c.start(ctx, cmd)
	if err != nil {
		return nil, err
	}
	return c.finish(ctx, cmd, p.await(ctx, cmd))
}

// DoAll sends all cmds at once. It calls answer for each as soon as its result is known;
// for commands to different servers it does so from several goroutines.
func (c *Conn) DoAll(ctx context.Context, cmds []*Command, answer func(i int, reply any, err error)) {
	sentBy := make([]*pipeline, len(cmds))
	for i, cmd := range cmds {
		if err := ctx.Err(); err != nil {
			answer(i, nil, notSent(err))
			continue
		}
		p, err := c.start(ctx, cmd)
		if err != nil {
			answer(i, nil, err)
			continue
		}
		sentBy[i] = p
	}
	await := func(indices []int) {
		for _, i := range indices {
			reply, err := c.finish(ctx, cmds[i], sentBy[i].await(ctx, cmds[i]))
			answer(i, reply, err)
		}
	}
	groups := c.byServer(sentBy)
	if len(groups) == 1 {
		await(groups[0])
		return
	}
	var all sync.WaitGroup // a server that hangs delays no other server's answers
	for _, indices := range groups {
		all.Go(func() { await(indices) })
	}
	all.Wait()
}

// byServer groups the indices of the pipelines by server. Each unpipelined command is a
// group: any server may get it. A command that was not sent has no pipeline, and no group.
func (c *Conn) byServer(sentBy []*pipeline) (groups [][]int) {
	groupOf := make(map[*pipeline]int)
	for i, p := range sentBy {
		n, known := groupOf[p]
		switch {
		case p == nil:
		case known && p != &c.unpipelined:
			groups[n] = append(groups[n], i)
		default:
			groupOf[p] = len(groups)
			groups = append(groups, []int{i})
		}
	}
	return groups
}

// start hands cmd to a pipeline. After Close, and where there is none, the user's client
// sends it.
func (c *Conn) start(ctx context.Context, cmd *Command) (p *pipeline, err error) {
	if cmd.run == nil && !c.closed.Load() {
		all := &c.commands
		if cmd.Urgent {
			all = &c.urgent
		}
		if p, err = c.pipelineTo(ctx, all, cmd.Key); err != nil {
			return nil, classify(err)
		}
	}
	if cmd.run == nil && p == nil {
		words := plain(cmd.Words)
		cmd.run = func() (any, error) { return cmd.Script.run(ctx, c.user, words) }
	}
	if cmd.run != nil {
		p = &c.unpipelined
	}
	p.start(ctx, cmd)
	return p, nil
}

// finish returns cmd's result; err is the error of awaiting it.
func (c *Conn) finish(ctx context.Context, cmd *Command, err error) (reply any, _ error) {
	switch {
	case cmd.Abandoned():
		c.abandoned.add(cmd)
		return nil, err
	case errors.Is(err, redis.ErrClosed) && c.closed.Load() && cmd.run == nil:
		p, err := c.start(ctx, cmd) // Close came in between: the user's client sends it
		if err != nil {
			return nil, err
		}
		return c.finish(ctx, cmd, p.await(ctx, cmd))
	}
	return cmd.reply, err
}

// AwaitAbandoned returns when each abandoned command that matches has its reply, or has expired:
// then it cannot reach the server any more. It returns an error when ctx ends.
func (c *Conn) AwaitAbandoned(ctx context.Context, matches func(*Command) bool) error {
	if c.abandoned.n.Load() == 0 {
		return nil
	}
	return c.abandoned.await(ctx, matches)
}

// pipelineTo returns the pipeline to key's server; nil if none sends commands about key.
func (c *Conn) pipelineTo(ctx context.Context, all *pipelines, key string) (*pipeline, error) {
	cluster := c.Cluster()
	if cluster == nil {
		return all.single, nil
	}
	node, err := c.Node(ctx, key)
	if err != nil {
		return nil, err
	}
	if p, ok := all.byClient.Load(node); ok {
		return p.(*pipeline), nil
	}
	all.byClient.Range(func(client, p any) bool {
		if p.(*pipeline).isClosed() { // its node has left the cluster
			all.byClient.Delete(client)
		}
		return true
	})
	p, _ := all.byClient.LoadOrStore(node, &pipeline{client: node, cluster: cluster})
	return p.(*pipeline), nil
}

// Cluster returns the private client of a cluster; nil if the deployment is none.
func (c *Conn) Cluster() *redis.ClusterClient {
	cluster, _ := c.private.(*redis.ClusterClient)
	return cluster
}

// Node returns the client of key's server, nil if the user's client is of a type of the
// user's. The first call may fetch the cluster's slot table.
func (c *Conn) Node(ctx context.Context, key string) (*redis.Client, error) {
	if c.Cluster() == nil || c.slotsKnown.Load() {
		return nodeOf(ctx, c.private, key)
	}
	cmd := newCommand(func() (any, error) { return nodeOf(ctx, c.private, key) })
	err := c.unpipelined.do(ctx, cmd)
	switch {
	case cmd.Abandoned():
		return nil, notSent(err)
	case err != nil:
		return nil, err
	}
	c.slotsKnown.Store(true)
	return cmd.reply.(*redis.Client), nil
}

// nodeOf returns the client of the server that has key; nil if rdb is of a type of the user's.
func nodeOf(ctx context.Context, rdb redis.UniversalClient, key string) (*redis.Client, error) {
	switch rdb := rdb.(type) {
	case *redis.Client:
		return rdb, nil
	case *redis.ClusterClient:
		return rdb.MasterForKey(ctx, key)
	}
	return nil, nil
}

// Owned reports whether the Conn has connections of its own. If not, the user's serve.
func (c *Conn) Owned() bool { return c.owned }

// Client returns the client for other commands: the private one, the user's after Close.
func (c *Conn) Client() redis.UniversalClient {
	if c.closed.Load() {
		return c.user
	}
	return c.private
}

// Close closes the connections. It gives abandoned commands a moment to be answered.
// Commands go to the user's client from now on.
func (c *Conn) Close() error {
	c.closed.Store(true)
	ctx, cancel := context.WithTimeout(context.Background(), closeBudget)
	defer cancel()
	_ = c.abandoned.await(ctx, func(*Command) bool { return true })
	if c.stop != nil {
		c.stop()
	}
	c.commands.close()
	c.urgent.close()
	if !c.owned {
		return nil // the user's
	}
	return c.private.Close()
}

func (ps *pipelines) close() {
	if ps.single != nil {
		ps.single.close()
		if fast := ps.single.fast; fast != nil {
			fast.close()
		}
	}
	ps.byClient.Range(func(_, p any) bool {
		p.(*pipeline).close()
		return true
	})
}

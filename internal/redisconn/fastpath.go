package redisconn

import (
	"context"
	"net"
	"time"

	"github.com/distlock/locker/internal/bound"
	"github.com/redis/go-redis/v9"
)

// dialEvery is the least time between two dials of a fast path. Where the server lets no
// further connection in, or drops those it has let in, each lone command would dial.
const dialEvery = time.Second

// probeAfter is how long a connection may be idle before it is probed.
const probeAfter = time.Second

// closeTimeout is how long close waits for the last command.
const closeTimeout = 200 * time.Millisecond

// fastPath sends one command on the caller's own goroutine, when no other is in flight, on a
// connection of its own. It saves two goroutine switches. No caller waits for a dial or a
// probe: while there is no connection, or it was idle for long enough to have died, the
// pipeline sends the commands and a goroutine sees to the connection.
type fastPath struct {
	like     *redis.Options
	greeting greeting
	free     chan *fastConn  // holds the connection, nil if there is none; empty while it is in use
	used     time.Time       // when the connection was last asked for
	dialed   time.Time       // when one was last dialed
	life     context.Context // of the connections
}

func newFastPath(life context.Context, like *redis.Options, hello greeting) *fastPath {
	f := &fastPath{like: like, greeting: hello, free: make(chan *fastConn, 1), life: life}
	f.free <- nil
	return f
}

// take takes the connection; nil if it is in use, or not known to be alive.
func (f *fastPath) take(now time.Time) *fastConn {
	select {
	case c := <-f.free:
		if c == nil && now.Sub(f.dialed) < dialEvery {
			f.free <- nil
			return nil
		}
		idle := now.Sub(f.used) > probeAfter
		if f.used = now; c == nil || idle || !c.expires.IsZero() && c.isOld(now) {
			go func() { f.free <- f.revive(c) }()
			return nil
		}
		return c
	default:
		return nil
	}
}

// revive returns c if it is alive, or else a new connection; nil if it cannot be made.
func (f *fastPath) revive(c *fastConn) *fastConn {
	if c != nil {
		if (c.expires.IsZero() || !c.isOld(time.Now())) && c.isAlive(f.life) {
			return c
		}
		c.close()
	}
	f.dialed = time.Now()
	if c = f.connect(); !c.isAlive(f.life) {
		c.close()
		return nil
	}
	return c
}

// give gives the connection back.
func (f *fastPath) give(c *fastConn) {
	if c.netConn.unusable.Load() {
		c.close()
		c = nil
	}
	f.free <- c
}

// close returns when life, which is over, has ended the last command.
func (f *fastPath) close() {
	done := make(chan struct{})
	go func() {
		defer close(done)
		if c := <-f.free; c != nil {
			c.close()
		}
	}()
	bound.Sleep(context.Background(), done, closeTimeout)
}

// fastConn is one connection. It is not dialed again.
type fastConn struct {
	client  *redis.Client // its pool holds conn and nothing else
	conn    *redis.Conn
	netConn *interruptibleConn
	// How long an answer is awaited, and the first one of a new connection.
	answerTimeout, connectTimeout time.Duration
	expires                       time.Time   // the end of its lifetime; zero: never
	unhook                        func() bool // from the closing context; nil: no command had one yet
}

// connect makes a connection, which dials when it is used first.
func (f *fastPath) connect() *fastConn {
	netConn := &interruptibleConn{}
	o := privateOptions(f.like)
	c := &fastConn{netConn: netConn, answerTimeout: o.ReadTimeout, connectTimeout: max(o.DialTimeout, o.ReadTimeout)}
	o.PoolSize = 1
	o.Protocol = 2 // no push notifications, for which go-redis would look before and after each command
	o.OnConnect = f.greeting.onConnect(o.Protocol)
	o.ReadTimeout, o.WriteTimeout = -2, -2 // netConn has the deadlines
	dial := o.Dialer
	o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		netConn.Conn = conn
		netConn.begin(time.Now().Add(c.answerTimeout), false)
		netConn.unhook = context.AfterFunc(f.life, func() { _ = conn.Close() })
		return netConn, nil
	}
	c.client = redis.NewClient(o)
	c.conn = c.client.Conn()
	if o.ConnMaxLifetime > 0 { // go-redis's pool does not see to a connection in use
		c.expires = time.Now().Add(o.ConnMaxLifetime)
	}
	return c
}

func (c *fastConn) isOld(now time.Time) bool { return now.After(c.expires) }

// isAlive asks the server for a sign of life; the first call connects.
func (c *fastConn) isAlive(life context.Context) bool {
	ctx, cancel := context.WithTimeout(life, c.connectTimeout)
	defer cancel()
	err := c.hello(ctx)
	if isServerError(err) && c.netConn.Conn != nil {
		// It may be the answer to the handshake: then go-redis returns the error again, and does not write.
		err = c.hello(ctx)
		return isServerError(err) && c.netConn.wrote.Load() && !c.netConn.unusable.Load()
	}
	return err == nil && !c.netConn.unusable.Load()
}

// hello sends HELLO, which needs no permission; any answer is a sign of life.
func (c *fastConn) hello(ctx context.Context) error {
	if c.netConn.Conn != nil {
		c.netConn.begin(time.Now().Add(c.answerTimeout), false)
	}
	return c.conn.Do(ctx, "hello").Err()
}

func (c *fastConn) close() {
	if c.unhook != nil {
		c.unhook()
	}
	_ = c.conn.Close()
	_ = c.client.Close()
}

// send sends cmd, and returns when it is answered or ctx ends. It reports whether cmd may
// have been sent. If the wait has ended before the reply, cmd.resolved is not nil, and is closed when
// the reply has come, or 2 s later. After a broken connection it is nil: no reply can come.
func (c *fastConn) send(ctx context.Context, now time.Time, cmd *Command) bool {
	caller, closing, deadline := bound.Ends(ctx)
	until := now.Add(c.answerTimeout)
	if !deadline.IsZero() && deadline.Before(until) {
		until = deadline
	}
	c.netConn.begin(until, closing != nil)
	if closing != nil { // the same one for all commands
		if c.unhook == nil {
			c.unhook = context.AfterFunc(closing, c.netConn.interruptClosing)
		}
		if closing.Err() != nil {
			c.netConn.interrupt()
		}
	}
	stop := func() bool { return true }
	if caller.Done() != nil {
		stop = context.AfterFunc(caller, c.netConn.interrupt)
	}
	cmd.cmd = cmd.Script.bySHA(context.Background(), &cmd.store, cmd.Words)
	err := c.conn.Process(context.Background(), cmd.cmd)
	cmd.cmd.SetErr(err)
	if !stop() || err != nil && (!isServerError(err) || isRedirect(err)) {
		c.netConn.interrupt() // no other command may use it; after READONLY go-redis does not use it, either
	}
	if err != nil && !isServerError(err) {
		cmd.resolved = c.netConn.awaited()
	}
	return c.netConn.wrote.Load()
}

// sendFast sends cmd by the fast path if no other command is in flight. It reports whether
// that is done: cmd was answered, or is abandoned.
func (p *pipeline) sendFast(ctx context.Context, cmd *Command) (done bool, err error) {
	if !p.isIdle() {
		return false, nil
	}
	now := time.Now()
	c := p.fast.take(now)
	if c == nil {
		return false, nil
	}
	sent := c.send(ctx, now, cmd)
	p.fast.give(c)
	switch {
	case !sent:
		return false, nil
	case cmd.cmd.Err() == nil:
		cmd.reply = cmd.cmd.Val()
		return true, nil
	case isNoScript(cmd.cmd.Err()):
		return false, nil
	case !cmd.Abandoned():
		return true, p.classify(cmd.cmd.Err())
	}
	cmd.expiry = time.Now().Add(p.resolveTimeout())
	why := ctx.Err()
	if why == nil { // the connection's deadline came first
		why = context.DeadlineExceeded
	}
	return true, unanswered(why)
}

// isIdle reports whether no command is queued or in flight.
func (p *pipeline) isIdle() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.busy) == 0 && len(p.queue) == p.gaps
}

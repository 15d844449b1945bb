package redisdriver

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/distlock/locker/internal/bound"
	"github.com/redis/go-redis/v9"
)

// lineEvery is how often a line is made at most. Where no further connection is let in, or the
// server gives up those that are, each lone command would make one.
const lineEvery = time.Second

// lineIdle is how long a line may have been idle for a command to be sent on it as it is.
const lineIdle = time.Second

// direct is the way of a command that comes alone: its caller sends it by itself, on a
// connection that it can leave when its ctx ends, which saves two changes of goroutines.
// While there is no connection the lane sends the commands, and one is made beside it: so
// no caller waits for a dial here. One that was idle for a while may have died, and is tried
// out first, likewise.
type direct struct {
	like  *redis.Options
	hello greeting
	free  chan *line      // holds the line, or nil if one is to be made; nothing while it is in use
	used  time.Time       // when the line was last asked for
	made  time.Time       // when one was last made
	life  context.Context // of the connections
}

func newDirect(life context.Context, like *redis.Options, hello greeting) *direct {
	d := &direct{like: like, hello: hello, free: make(chan *line, 1), life: life}
	d.free <- nil
	return d
}

// take takes the line if it is there and free, and known to be alive.
func (d *direct) take(now time.Time) *line {
	select {
	case n := <-d.free:
		if n == nil && now.Sub(d.made) < lineEvery {
			d.free <- nil
			return nil
		}
		idle := now.Sub(d.used) > lineIdle
		if d.used = now; n == nil || idle || n.isOld(now) {
			go func() { d.free <- d.revive(n) }()
			return nil
		}
		return n
	default:
		return nil
	}
}

// revive returns the line if it is alive, or else another one; nil if there is none.
func (d *direct) revive(n *line) *line {
	if n != nil {
		if !n.isOld(time.Now()) && n.isAlive(d.life) {
			return n
		}
		n.close()
	}
	d.made = time.Now()
	if n = d.connect(); !n.isAlive(d.life) {
		n.close()
		return nil
	}
	return n
}

// give gives the line back.
func (d *direct) give(n *line) {
	if n.wire.lost() {
		n.close()
		n = nil
	}
	d.free <- n
}

// close returns when life, which is over, has ended the last command.
func (d *direct) close() {
	done := make(chan struct{})
	go func() {
		defer close(done)
		if n := <-d.free; n != nil {
			n.close()
		}
	}()
	WaitFor(done, hubsClose)
}

// line is one connection, which is not made again.
type line struct {
	rdb  *redis.Client // which has it
	conn *redis.Conn
	wire *wire
	// How long an answer is waited for, and the first one of a new connection.
	answers, connects time.Duration
	until             time.Time   // its lifetime is over; zero: never
	forget            func() bool // the end of the Locker; nil before the first command that ends with it
}

// connect makes a line, which dials when it is used first.
func (d *direct) connect() *line {
	w := &wire{}
	o := privateOptions(d.like)
	n := &line{wire: w, answers: o.ReadTimeout, connects: max(o.DialTimeout, o.ReadTimeout)}
	o.PoolSize = 1
	o.Protocol = 2 // no notices, for which go-redis would look before and after each command
	o.OnConnect = d.hello.by(o.Protocol)
	o.ReadTimeout, o.WriteTimeout = -2, -2 // the wire has the deadlines
	dial := o.Dialer
	o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		w.Conn = conn
		w.begin(time.Now().Add(n.answers), false)
		w.forget = context.AfterFunc(d.life, func() { _ = conn.Close() })
		return w, nil
	}
	n.rdb = redis.NewClient(o)
	n.conn = n.rdb.Conn()
	if o.ConnMaxLifetime > 0 { // go-redis's pool would see to it
		n.until = time.Now().Add(o.ConnMaxLifetime)
	}
	return n
}

func (n *line) isOld(now time.Time) bool { return !n.until.IsZero() && now.After(n.until) }

// isAlive asks the server for a sign of life; the first call connects.
func (n *line) isAlive(life context.Context) bool {
	if n.wire.Conn != nil {
		n.wire.begin(time.Now().Add(n.answers), false)
	}
	ctx, cancel := context.WithTimeout(life, n.connects)
	defer cancel()
	// HELLO needs no permission; any answer is a sign of life.
	err := n.conn.Do(ctx, "hello").Err()
	return (err == nil || isAnswer(err)) && !n.wire.lost()
}

func (n *line) close() {
	if n.forget != nil {
		n.forget()
	}
	_ = n.conn.Close()
	_ = n.rdb.Close()
}

// send sends f's command, and returns when it is answered or ctx ends; it reports false if
// the command certainly was not sent. If f.over is set, it may be on its way still until
// that is closed.
func (n *line) send(ctx context.Context, now time.Time, f *flight) bool {
	caller, locker := bound.Ends(ctx)
	until := now.Add(n.answers)
	if end := bound.Own(ctx); !end.IsZero() && end.Before(until) {
		until = end
	}
	n.wire.begin(until, locker != nil)
	if locker != nil { // always the same one
		if n.forget == nil {
			n.forget = context.AfterFunc(locker, n.wire.leaveLocker)
		}
		if locker.Err() != nil {
			n.wire.leave()
		}
	}
	stay := func() bool { return true }
	if caller.Done() != nil {
		stay = context.AfterFunc(caller, n.wire.leave)
	}
	f.cmd = f.script.bySHA(context.Background(), &f.made, f.in)
	err := n.conn.Process(context.Background(), f.cmd)
	f.cmd.SetErr(err)
	if !stay() || err != nil && (!isAnswer(err) || isElsewhere(err)) {
		n.wire.leave() // no other command is to be on it; after READONLY go-redis does not use it, either
	}
	if err != nil && !isAnswer(err) {
		f.over = n.wire.ended()
	}
	return n.wire.wrote.Load()
}

// lone sends f directly if nothing else is on its way, and reports whether that is done:
// it was answered, or its caller had to leave.
func (l *lane) lone(ctx context.Context, f *flight) (done, left bool, err error) {
	if l.direct == nil || !l.idle() {
		return false, false, nil
	}
	now := time.Now()
	n := l.direct.take(now)
	if n == nil {
		return false, false, nil
	}
	sent := n.send(ctx, now, f)
	l.direct.give(n)
	switch {
	case !sent || isNoScript(f.cmd.Err()):
		return false, false, nil
	case f.over == nil:
		f.reply, f.err = f.cmd.Val(), l.classify(f.cmd.Err())
		return true, false, f.err
	}
	f.until = time.Now().Add(l.hungAfter())
	end := ctx.Err()
	if end == nil { // the connection was first to notice
		end = context.DeadlineExceeded
	}
	return true, true, fmt.Errorf("the store has not answered: %w", end)
}

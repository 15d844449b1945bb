package faultproxy

import (
	"bufio"
	"bytes"
	"context"
	"net"
	"sync"
	"time"
)

// Big enough for the pipelines of tests to arrive in one read.
const bufferSize = 64 << 10

var (
	isSetup     = MatchCommand("HELLO", "AUTH", "SELECT", "CLIENT")
	isSubscribe = MatchCommand("SUBSCRIBE", "PSUBSCRIBE", "SSUBSCRIBE")
)

// A conn is a client's connection and the one to the server that belongs to it.
type conn struct {
	p      *Proxy
	ctx    context.Context // done when the connection is cut
	cancel context.CancelFunc
	client *net.TCPConn
	server halfCloser

	mu      sync.Mutex
	is      Conn
	pending []expected // replies to come, in order
}

// halfCloser is a TCP connection or one by a unix socket.
type halfCloser interface {
	net.Conn
	CloseWrite() error
}

// expected says what becomes of a reply.
type expected struct {
	action action
	rule   *Rule // nil for none
}

func newConn(p *Proxy, client *net.TCPConn) *conn {
	ctx, cancel := context.WithCancel(context.Background())
	is := Conn{ID: p.lastID.Add(1), ClientAddr: client.RemoteAddr().String()}
	return &conn{p: p, ctx: ctx, cancel: cancel, client: client, is: is}
}

func (c *conn) info() Conn {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.is
}

// cut makes serve return. It does not close the server's connection itself,
// which may not be there yet.
func (c *conn) cut() {
	c.cancel()
	_ = c.client.Close()
}

// hangUp closes the client's connection by RST. What was sent to the server
// before still gets there.
func (c *conn) hangUp() {
	_ = c.client.SetLinger(0)
	_ = c.client.Close()
}

// reset is cut by RST.
func (c *conn) reset() {
	c.hangUp()
	c.cut()
}

func (c *conn) serve() {
	defer c.cut()
	if !c.p.awaitLink(c.ctx, c) {
		return
	}
	var d net.Dialer
	server, err := d.DialContext(c.ctx, c.p.network, c.p.upstream)
	if err != nil {
		return // the client learns it from the closed connection
	}
	defer server.Close()
	defer context.AfterFunc(c.ctx, func() { _ = server.Close() })()
	c.server = server.(halfCloser)
	if c.p.network == "tcp" {
		c.mu.Lock()
		c.is.ServerAddr = server.LocalAddr().String()
		c.mu.Unlock()
	}

	if c.p.plain {
		c.copyBothWays()
		return
	}
	var wg sync.WaitGroup
	replies := make(chan reply, mostHeld)
	wg.Go(func() { c.readReplies(replies) })
	wg.Go(func() { c.forwardReplies(replies) })
	c.forwardCommands()
	wg.Wait()
	for _, e := range c.pending {
		if e.rule != nil {
			e.rule.release()
		}
	}
}

// forwardCommands ends with the client's connection. The server then is to
// answer what it got and to hang up.
func (c *conn) forwardCommands() {
	defer func() { _ = c.server.CloseWrite() }() // it may have hung up first
	in := bufio.NewReaderSize(c.client, bufferSize)
	counted, subscribed := false, false
	for {
		if in.Buffered() == 0 {
			counted = false // the next command is the first of a round trip
		}
		cmd, raw, err := readCommand(in)
		if err != nil {
			c.p.report(err)
			return
		}
		if len(cmd) == 0 {
			continue
		}
		newTrip := !counted && !isSetup(cmd)
		counted = counted || newTrip
		if !subscribed && isSubscribe(cmd) {
			subscribed = true
			c.mu.Lock()
			c.is.Subscribed = true
			c.mu.Unlock()
		}
		if !c.forward(cmd, raw, newTrip, subscribed) {
			return
		}
	}
}

// forward sends a command to the server the way its rule wants.
func (c *conn) forward(cmd []string, raw []byte, newTrip, subscribed bool) bool {
	e := expected{action: pass, rule: c.p.see(c, cmd, newTrip, subscribed)}
	if e.rule != nil {
		e.action = e.rule.action
	}
	replies := []expected{e}
	switch e.action {
	case resetBefore:
		e.rule.fire()
		c.hangUp()
		return false
	case delay:
		e.rule.fire()
		if !c.sleep(e.rule.delay, e.rule.over) {
			return false
		}
		replies = []expected{{action: pass}}
	case duplicate:
		replies = append(replies, expected{action: pass})
		raw = append(raw, raw...)
	}
	if subscribed {
		replies = nil // what comes from now on passes through
	}
	c.mu.Lock()
	c.pending = append(c.pending, replies...)
	c.mu.Unlock()
	return c.write(c.server, raw) == nil
}

// reply is one of the server, which is to be held until then if it is to be late.
type reply struct {
	expected
	raw  []byte
	then time.Time
}

// mostHeld is how many replies of a connection are held at a time.
const mostHeld = 4096

// readReplies ends with the server's connection. It reads to the end even
// when nobody listens: hanging up on the server would keep it from commands it
// has not read yet.
func (c *conn) readReplies(to chan<- reply) {
	defer close(to)
	in := bufio.NewReaderSize(c.server, bufferSize)
	for {
		raw, push, err := readReply(in)
		if err != nil {
			c.p.report(err)
			return
		}
		r := reply{expected: expected{action: pass}, raw: raw}
		if !push {
			r.expected = c.next(raw)
		}
		if r.action == delayReply {
			r.then = time.Now().Add(r.rule.delay)
		}
		select {
		case to <- r:
		case <-c.ctx.Done():
			to = nil // there is no client any more
		}
	}
}

func (c *conn) forwardReplies(replies <-chan reply) {
	defer c.cut()
	silent := false
	for r := range replies {
		switch r.action {
		case duplicate:
			continue
		case dropReply:
			_ = c.client.Close()
			silent = true
		case resetAfter:
			c.hangUp()
			silent = true
		case hangReply:
			silent = true
		case delayReply:
			if !c.sleep(time.Until(r.then), r.rule.over) {
				return
			}
		}
		if !silent && c.write(c.client, r.raw) != nil {
			silent = true
		}
	}
}

// next returns what becomes of reply, with its rule fired.
func (c *conn) next(reply []byte) expected {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.pending) == 0 {
		return expected{action: pass} // the connection has subscribed
	}
	e := c.pending[0]
	c.pending = c.pending[1:]
	if e.rule == nil {
		return e
	}
	if bytes.HasPrefix(reply, []byte("-NOSCRIPT")) {
		e.rule.release()
		if e.action != duplicate { // of two, one still is too many
			e.action = pass
		}
		return e
	}
	e.rule.fire()
	return e
}

// piece divides the bytes of a second: a throttled link carries a fiftieth of them at a time.
const piece = 50

// write sends b when and as fast as the link lets it.
func (c *conn) write(to net.Conn, b []byte) error {
	for len(b) > 0 {
		if !c.p.awaitLink(c.ctx, c) {
			return context.Cause(c.ctx)
		}
		n := len(b)
		_, rate := c.p.link(c)
		if rate > 0 {
			n = min(n, max(rate/piece, 1))
		}
		if _, err := to.Write(b[:n]); err != nil {
			return err
		}
		b = b[n:]
		if rate > 0 && !c.sleep(time.Duration(n)*time.Second/time.Duration(rate), nil) {
			return context.Cause(c.ctx)
		}
	}
	return nil
}

// sleep returns after d or when over is closed; false when the connection was cut
// meanwhile.
func (c *conn) sleep(d time.Duration, over <-chan struct{}) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-over:
		return true
	case <-c.ctx.Done():
		return false
	}
}

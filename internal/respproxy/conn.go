package respproxy

import (
	"bufio"
	"bytes"
	"context"
	"errors"
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
	client net.Conn
	server *net.TCPConn

	mu      sync.Mutex
	pending []expected // replies to come, in order
}

// expected says what becomes of a reply.
type expected struct {
	action action
	rule   *Rule // nil for none
}

func newConn(p *Proxy, client net.Conn) *conn {
	ctx, cancel := context.WithCancel(context.Background())
	return &conn{p: p, ctx: ctx, cancel: cancel, client: client}
}

// cut makes serve return. It does not close the server's connection itself,
// which may not be there yet.
func (c *conn) cut() {
	c.cancel()
	_ = c.client.Close()
}

func (c *conn) serve() {
	defer c.cut()
	if !c.p.awaitLink(c.ctx) {
		return
	}
	var d net.Dialer
	server, err := d.DialContext(c.ctx, "tcp", c.p.upstream)
	if err != nil {
		return // the client learns it from the closed connection
	}
	defer server.Close()
	defer context.AfterFunc(c.ctx, func() { _ = server.Close() })()
	c.server = server.(*net.TCPConn)

	var wg sync.WaitGroup
	wg.Go(c.forwardReplies)
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
			c.report(err)
			return
		}
		if len(cmd) == 0 {
			continue
		}
		newTrip := !counted && !isSetup(cmd)
		counted = counted || newTrip
		subscribed = subscribed || isSubscribe(cmd)
		if !c.forward(cmd, raw, newTrip, subscribed) {
			return
		}
	}
}

// forward sends a command to the server the way its rule wants.
func (c *conn) forward(cmd []string, raw []byte, newTrip, subscribed bool) bool {
	e := expected{action: pass, rule: c.p.see(cmd, newTrip, subscribed)}
	if e.rule != nil {
		e.action = e.rule.action
	}
	replies := []expected{e}
	switch e.action {
	case delay:
		e.rule.fire()
		if !c.sleep(e.rule.delay) {
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
	if !c.p.awaitLink(c.ctx) {
		return false
	}
	_, err := c.server.Write(raw)
	return err == nil
}

// forwardReplies ends with the server's connection. It reads to the end even
// when nobody listens: hanging up on the server would keep it from commands it
// has not read yet.
func (c *conn) forwardReplies() {
	defer c.cut()
	in := bufio.NewReaderSize(c.server, bufferSize)
	silent := false
	for {
		raw, push, err := readReply(in)
		if err != nil {
			c.report(err)
			return
		}
		e := expected{action: pass}
		if !push {
			e = c.next(raw)
		}
		switch e.action {
		case duplicate:
			continue
		case dropReply:
			_ = c.client.Close()
			silent = true
		case hangReply:
			silent = true
		case delayReply:
			if !c.sleep(e.rule.delay) {
				return
			}
		}
		if silent {
			continue
		}
		if !c.p.awaitLink(c.ctx) {
			return
		}
		if _, err := c.client.Write(raw); err != nil {
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

// sleep returns false when the connection was cut meanwhile.
func (c *conn) sleep(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-c.ctx.Done():
		return false
	}
}

// report fails the test for what this package does not understand, but not for
// a broken connection.
func (c *conn) report(err error) {
	if errors.Is(err, errProtocol) {
		c.p.tb.Error(err)
	}
}

package faultproxy

import (
	"context"
	"io"
	"net"
	"sync"
)

// NewPlain is [New] for a server that speaks any protocol: bytes pass as they come, TLS
// included. What concerns the link works ([Faults.Blackhole], [Faults.Throttle],
// [Faults.Cut], [Faults.Reset], [Proxy.Refuse]), and so do [Proxy.Mute] and
// [Proxy.HoldAfter], which are for such a proxy only. There are no commands, and so no
// rules, counts or subscribed connections.
func NewPlain(upstream string) (*Proxy, error) { return start(upstream, true) }

// Mute holds back what the server sends from now on, while what clients send passes: commands
// are carried out, and nobody learns of it. What was held back passes when it is turned off,
// unless the connection was cut.
func (p *Proxy) Mute(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case on && p.mute == nil:
		p.mute = make(chan struct{})
	case !on && p.mute != nil:
		close(p.mute)
		p.mute = nil
	}
}

// HoldAfter lets clients send n more pieces, each what one read from a connection returns,
// which for a client that waits for answers is one request. It holds back what they send
// after that until let is called; held is closed when the first piece has to wait. So a
// command that is several requests can be stopped between any two.
func (p *Proxy) HoldAfter(n int) (held <-chan struct{}, let func()) {
	g := &gate{left: n, held: make(chan struct{}), open: make(chan struct{})}
	p.mu.Lock()
	p.gate = g
	p.mu.Unlock()
	return g.held, sync.OnceFunc(func() {
		close(g.open)
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.gate == g {
			p.gate = nil
		}
	})
}

// gate is what HoldAfter puts in the way.
type gate struct {
	left int // pieces that may pass; guarded by the proxy's mutex
	held chan struct{}
	open chan struct{}
}

// awaitGate returns when a piece may go to the server, false when ctx is done before.
func (p *Proxy) awaitGate(ctx context.Context) bool {
	p.mu.Lock()
	g := p.gate
	if g == nil {
		p.mu.Unlock()
		return true
	}
	g.left--
	if g.left == -1 {
		close(g.held)
	}
	passes := g.left >= 0
	p.mu.Unlock()
	if passes {
		return true
	}
	select {
	case <-g.open:
		return true
	case <-ctx.Done():
		return false
	}
}

// awaitSound returns when what the server sends may pass, false when ctx is done before.
func (p *Proxy) awaitSound(ctx context.Context) bool {
	p.mu.Lock()
	mute := p.mute
	p.mu.Unlock()
	if mute == nil {
		return true
	}
	select {
	case <-mute:
		return true
	case <-ctx.Done():
		return false
	}
}

// copyBothWays passes bytes on until one side has hung up: what the server still sends then
// gets to the client.
func (c *conn) copyBothWays() {
	var both sync.WaitGroup
	both.Go(func() {
		c.copy(c.server, c.client, c.p.awaitGate)
		_ = c.server.CloseWrite() // it may have hung up first
	})
	both.Go(func() {
		c.copy(c.client, c.server, c.p.awaitSound)
		c.cut()
	})
	both.Wait()
}

// copy passes on what comes from one side until that ends.
func (c *conn) copy(to net.Conn, from io.Reader, await func(context.Context) bool) {
	buf := make([]byte, bufferSize)
	for {
		n, err := from.Read(buf)
		if n > 0 && (!await(c.ctx) || c.write(to, buf[:n]) != nil) {
			return
		}
		if err != nil {
			return
		}
	}
}

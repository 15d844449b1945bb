package faultproxy

import (
	"context"
	"io"
	"net"
	"sync"
)

// NewPlain is [New] for a server that speaks any protocol: bytes pass as they come, TLS
// included. What concerns the link works ([Faults.Blackhole], [Faults.Throttle],
// [Faults.Cut], [Faults.Reset], [Proxy.Refuse]), and so do [Proxy.Mute], [Proxy.MuteAfter] and
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
	case on && p.muted == nil:
		p.muted = p.answers.put(0)
	case !on && p.muted != nil:
		p.answers.open(p.muted)
		p.muted = nil
	}
}

// MuteAfter is [Proxy.Mute] that lets n more pieces pass, each what one read from the server returns, which for a
// server that answers a client is one answer. It holds back what the server sends after that until let is called; held is
// closed when the first piece has to wait. So any one of the answers to a command that is several requests can be lost.
func (p *Proxy) MuteAfter(n int) (held <-chan struct{}, let func()) {
	return p.holdAfter(&p.answers, n)
}

// HoldAfter lets clients send n more pieces, each what one read from a connection returns,
// which for a client that waits for answers is one request. It holds back what they send
// after that until let is called; held is closed when the first piece has to wait. So a
// command that is several requests can be stopped between any two.
func (p *Proxy) HoldAfter(n int) (held <-chan struct{}, let func()) {
	return p.holdAfter(&p.requests, n)
}

func (p *Proxy) holdAfter(w *way, n int) (held <-chan struct{}, let func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	g := w.put(n)
	return g.held, sync.OnceFunc(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		w.open(g)
	})
}

// way is one direction of all connections. It is guarded by the proxy's mutex.
type way struct{ gate *gate } // nil: everything passes

// gate stops one way after some pieces.
type gate struct {
	left int // pieces that may pass
	held chan struct{}
	over chan struct{}
}

// put puts a gate in the way, in place of the one that is there.
func (w *way) put(n int) *gate {
	w.gate = &gate{left: n, held: make(chan struct{}), over: make(chan struct{})}
	return w.gate
}

// open lets the pieces pass that g holds back.
func (w *way) open(g *gate) {
	close(g.over)
	if w.gate == g {
		w.gate = nil
	}
}

// await returns when a piece may go its way, false when ctx is done before.
func (p *Proxy) await(ctx context.Context, w *way) bool {
	p.mu.Lock()
	g := w.gate
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
	case <-g.over:
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
		c.copy(c.server, c.client, &c.p.requests)
		_ = c.server.CloseWrite() // it may have hung up first
	})
	both.Go(func() {
		c.copy(c.client, c.server, &c.p.answers)
		c.cut()
	})
	both.Wait()
}

// copy passes on what comes from one side until that ends.
func (c *conn) copy(to net.Conn, from io.Reader, w *way) {
	buf := make([]byte, bufferSize)
	for {
		n, err := from.Read(buf)
		if n > 0 && (!c.p.await(c.ctx, w) || c.write(to, buf[:n]) != nil) {
			return
		}
		if err != nil {
			return
		}
	}
}

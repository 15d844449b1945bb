package faultproxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// A Proxy stands between clients and one Redis server. Its [Faults] concern all
// connections; those of [Faults.Only] concern some. Its methods are safe for
// concurrent use.
type Proxy struct {
	*Faults
	network  string
	upstream string
	plain    bool // nothing is understood: see NewPlain
	listener net.Listener
	wg       sync.WaitGroup
	lastID   atomic.Int64

	mu       sync.Mutex
	conns    map[*conn]struct{}
	rules    []*Rule
	links    []*Faults // those with a link that is not as it should be
	watchers []func(cmd []string)
	commands [][]string
	silent   bool // commands are not kept
	trips    int
	refuse   bool
	requests way   // see HoldAfter
	answers  way   // see MuteAfter
	muted    *gate // by Mute; nil: it is off
	err      error // what was not understood
}

// New starts a proxy for the server at upstream, a host:port or the path of a unix
// socket. (The port of a server that has died may go to another one, its socket does
// not.) Close ends it.
func New(upstream string) (*Proxy, error) { return start(upstream, false) }

func start(upstream string, plain bool) (*Proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("faultproxy: %w", err)
	}
	p := &Proxy{network: "tcp", upstream: upstream, plain: plain, listener: l, conns: make(map[*conn]struct{})}
	if strings.ContainsRune(upstream, '/') {
		p.network = "unix"
	}
	p.Faults = &Faults{p: p, which: func(Conn) bool { return true }}
	p.wg.Go(p.accept)
	return p, nil
}

// Start is [New] for a test, which the proxy ends with, and which fails if a
// client or the server said something the proxy did not understand.
func Start(tb testing.TB, upstream string) *Proxy {
	tb.Helper()
	p, err := New(upstream)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := p.Close(); err != nil {
			tb.Error(err)
		}
	})
	return p
}

// Close cuts all connections and ends the proxy. Its error is of what the proxy
// did not understand in its time, which it passed on no further.
func (p *Proxy) Close() error {
	p.Refuse(true) // one more may be accepted before the listener is closed
	_ = p.listener.Close()
	p.wg.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

// Addr returns the host:port clients connect to.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Refuse cuts all connections, and closes new ones at once as long as it is on.
func (p *Proxy) Refuse(on bool) {
	p.mu.Lock()
	p.refuse = on
	p.mu.Unlock()
	if on {
		p.Cut()
	}
}

// Conns returns the connections that are open, in the order in which they came.
func (p *Proxy) Conns() []Conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := make([]Conn, 0, len(p.conns))
	for c := range p.conns {
		all = append(all, c.info())
	}
	slices.SortFunc(all, func(a, b Conn) int { return int(a.ID - b.ID) })
	return all
}

// Commands returns the commands seen so far, each joined by spaces.
func (p *Proxy) Commands() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := make([]string, 0, len(p.commands))
	for _, cmd := range p.commands {
		all = append(all, strings.Join(cmd, " "))
	}
	return all
}

// Count returns how many commands seen so far match.
func (p *Proxy) Count(match Match) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for _, cmd := range p.commands {
		if match(cmd) {
			n++
		}
	}
	return n
}

// RoundTrips returns how many times a client sent something: one for a command
// on its own and one for a pipeline. Setting up a connection (HELLO, AUTH,
// SELECT, CLIENT) is not counted.
//
// It goes by what one read from the connection returns, so it counts more for a
// pipeline of more than 64 KiB, and less for a client that does not wait for
// the answers to one pipeline before it sends the next.
func (p *Proxy) RoundTrips() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.trips
}

// Watch calls f with each command from now on. f must not call the Proxy.
func (p *Proxy) Watch(f func(cmd []string)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.watchers = append(p.watchers, f)
}

// Record sets whether commands are kept for Commands and Count. They are unless
// it is turned off.
func (p *Proxy) Record(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.silent = !on
}

// ResetCounts forgets the commands and round trips seen so far.
func (p *Proxy) ResetCounts() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.commands, p.trips = nil, 0
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return // closed
		}
		c := newConn(p, client.(*net.TCPConn))
		p.mu.Lock()
		refused := p.refuse
		if !refused {
			p.conns[c] = struct{}{}
		}
		p.mu.Unlock()
		if refused {
			c.cut()
			continue
		}
		p.wg.Go(func() {
			c.serve()
			p.mu.Lock()
			defer p.mu.Unlock()
			delete(p.conns, c)
		})
	}
}

// see records a command and returns the rule for it, if any.
func (p *Proxy) see(c *conn, cmd []string, newTrip, subscribed bool) *Rule {
	info := c.info()
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.silent {
		p.commands = append(p.commands, cmd)
	}
	for _, f := range p.watchers {
		f(cmd)
	}
	if newTrip {
		p.trips++
	}
	for _, limited := range []bool{true, false} { // what is for some commands comes before what is for all
		i := slices.IndexFunc(p.rules, func(r *Rule) bool {
			return r.limit > 0 == limited && (!subscribed || r.action.needsNoReply()) && r.which(info) && r.claim(cmd)
		})
		if i >= 0 {
			return p.rules[i]
		}
	}
	return nil
}

// matching returns the connections that which is for.
func (p *Proxy) matching(which ConnMatch) []*conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	var some []*conn
	for c := range p.conns {
		if which(c.info()) {
			some = append(some, c)
		}
	}
	return some
}

// link returns the black hole that c is in, nil for none, and how many bytes a
// second it may pass on, 0 for any number.
func (p *Proxy) link(c *conn) (hole chan struct{}, rate int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.links) == 0 {
		return nil, 0
	}
	info := c.info()
	for _, f := range p.links {
		if !f.which(info) {
			continue
		}
		if f.hole != nil {
			hole = f.hole
		}
		if f.rate > 0 && (rate == 0 || f.rate < rate) {
			rate = f.rate
		}
	}
	return hole, rate
}

// awaitLink returns when c is in no black hole, or false when ctx is done.
func (p *Proxy) awaitLink(ctx context.Context, c *conn) bool {
	for {
		hole, _ := p.link(c)
		if hole == nil {
			return ctx.Err() == nil
		}
		select {
		case <-hole:
		case <-ctx.Done():
			return false
		}
	}
}

// report keeps what this package does not understand. A broken connection is
// nothing special.
func (p *Proxy) report(err error) {
	if !errors.Is(err, errProtocol) {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err == nil {
		p.err = err
	}
}

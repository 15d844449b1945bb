package respproxy

import (
	"context"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// A Proxy stands between clients and one Redis server. Its methods are safe for
// concurrent use.
type Proxy struct {
	tb       testing.TB
	upstream string
	listener net.Listener
	wg       sync.WaitGroup

	mu       sync.Mutex
	conns    map[*conn]struct{}
	rules    []*Rule
	commands [][]string
	silent   bool // commands are not kept
	trips    int
	hole     chan struct{} // closed when the blackhole ends; nil when there is none
	refuse   bool
}

// Start starts a proxy for the server at upstream, a host:port. It ends with
// the test.
func Start(tb testing.TB, upstream string) *Proxy {
	tb.Helper()
	var lc net.ListenConfig
	l, err := lc.Listen(tb.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatalf("respproxy: %v", err)
	}
	p := &Proxy{tb: tb, upstream: upstream, listener: l, conns: make(map[*conn]struct{})}
	p.wg.Go(p.accept)
	tb.Cleanup(func() {
		p.Refuse(true) // one more may be accepted before the listener is closed
		_ = l.Close()
		p.wg.Wait()
	})
	return p
}

// Addr returns the host:port clients connect to.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// DropReply lets the server answer the next n commands that match, so that they
// were applied, keeps the answer and closes the client's connection. What else
// came in the same pipeline is applied too.
func (p *Proxy) DropReply(match Match, n int) *Rule { return p.add(match, dropReply, n, 0) }

// HangReply is DropReply with a connection that stays open and silent, until
// the client gives up.
func (p *Proxy) HangReply(match Match, n int) *Rule { return p.add(match, hangReply, n, 0) }

// Duplicate sends the next n commands that match to the server twice, one right
// after the other, and the client only the second answer.
func (p *Proxy) Duplicate(match Match, n int) *Rule { return p.add(match, duplicate, n, 0) }

// Delay holds commands that match, and those behind them on the connection, for
// d before the server gets them. They arrive even if the client has gone away
// meanwhile, as packets on the way do. The rule fires when the delay begins.
func (p *Proxy) Delay(match Match, d time.Duration) *Rule { return p.add(match, delay, 0, d) }

// DelayReply lets the server answer the next n commands that match at once, and
// holds the answer, and those behind it, for d. n of 0 is no limit. The rule fires
// when the delay begins.
func (p *Proxy) DelayReply(match Match, n int, d time.Duration) *Rule {
	return p.add(match, delayReply, n, d)
}

func (p *Proxy) add(match Match, a action, limit int, d time.Duration) *Rule {
	r := newRule(match, a, limit, d)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rules = append(p.rules, r)
	return r
}

// Blackhole makes the link go silent in both directions. Connections stay open
// and new ones are accepted. What was sent meanwhile arrives when the blackhole
// ends, whoever has gone away by then, unless the connection was cut.
func (p *Proxy) Blackhole(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case on && p.hole == nil:
		p.hole = make(chan struct{})
	case !on && p.hole != nil:
		close(p.hole)
		p.hole = nil
	}
}

// Refuse cuts all connections, and closes new ones at once as long as it is on.
func (p *Proxy) Refuse(on bool) {
	p.mu.Lock()
	p.refuse = on
	p.mu.Unlock()
	if on {
		p.CutAll()
	}
}

// CutAll breaks all connections. What they had in flight is lost.
func (p *Proxy) CutAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		c.cut()
	}
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

// Record says whether commands are kept for Commands and Count. They are unless
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
			return // closed by the clean-up
		}
		c := newConn(p, client)
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
func (p *Proxy) see(cmd []string, newTrip, subscribed bool) *Rule {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.silent {
		p.commands = append(p.commands, cmd)
	}
	if newTrip {
		p.trips++
	}
	i := slices.IndexFunc(p.rules, func(r *Rule) bool {
		return (!subscribed || r.action == delay) && r.claim(cmd)
	})
	if i < 0 {
		return nil
	}
	return p.rules[i]
}

// awaitLink returns when there is no blackhole, or false when ctx is done.
func (p *Proxy) awaitLink(ctx context.Context) bool {
	for {
		p.mu.Lock()
		hole := p.hole
		p.mu.Unlock()
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

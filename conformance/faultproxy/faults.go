package faultproxy

import (
	"slices"
	"time"
)

// Conn identifies a connection of a client.
type Conn struct {
	ID int64 // 1 for the first that came, 2 for the second, ...
	// ClientAddr is the client's end: the LocalAddr of its net.Conn.
	ClientAddr string
	// ServerAddr is what the server calls the client, as in CLIENT LIST; "" until
	// the proxy has connected, and by a unix socket.
	ServerAddr string
	// Subscribed reports that the client has sent SUBSCRIBE, PSUBSCRIBE or SSUBSCRIBE.
	Subscribed bool
}

// A ConnMatch reports whether something is for a connection. It must not call the
// Proxy.
type ConnMatch = func(Conn) bool

// ByID matches the connections with these ids.
func ByID(ids ...int64) ConnMatch {
	return func(c Conn) bool { return slices.Contains(ids, c.ID) }
}

// ByAddr matches the connections of which one of the two addresses is among
// these.
func ByAddr(addrs ...string) ConnMatch {
	return func(c Conn) bool { return slices.Contains(addrs, c.ClientAddr) || slices.Contains(addrs, c.ServerAddr) }
}

// Subscribed matches connections that have subscribed to a channel.
func Subscribed(c Conn) bool { return c.Subscribed }

// Normal matches connections that have not subscribed to a channel.
func Normal(c Conn) bool { return !c.Subscribed }

// Faults are the faults that can happen to some of a proxy's connections, present and
// future: rules for commands, and trouble with the link. The methods are safe for
// concurrent use.
type Faults struct {
	p     *Proxy
	which ConnMatch

	// Guarded by p.mu.
	hole chan struct{} // closed when the blackhole ends; nil when there is none
	rate int           // bytes per second; 0 for any number
}

// Only returns the faults of those connections of f that match. What is arranged
// with them concerns these alone. A connection is looked at anew for each command,
// so that one that subscribes is from then on among the subscribed.
func (f *Faults) Only(which ConnMatch) *Faults {
	return &Faults{p: f.p, which: func(c Conn) bool { return f.which(c) && which(c) }}
}

// DropReply lets the server answer the next n commands that match, so that they
// were applied, keeps the answer and closes the client's connection. What else
// came in the same pipeline is applied too.
func (f *Faults) DropReply(match Match, n int) *Rule { return f.add(match, dropReply, n, 0) }

// HangReply is DropReply with a connection that stays open and silent, until
// the client gives up.
func (f *Faults) HangReply(match Match, n int) *Rule { return f.add(match, hangReply, n, 0) }

// ResetAfter is DropReply with a connection that is reset (RST), as by a host that
// has gone down and come back.
func (f *Faults) ResetAfter(match Match, n int) *Rule { return f.add(match, resetAfter, n, 0) }

// ResetBefore resets (RST) the client's connection when it sends one of the next n
// commands that match, which does not reach the server. What came before it in the
// same pipeline does.
func (f *Faults) ResetBefore(match Match, n int) *Rule { return f.add(match, resetBefore, n, 0) }

// Duplicate sends the next n commands that match to the server twice, one right
// after the other, and the client only the second answer.
func (f *Faults) Duplicate(match Match, n int) *Rule { return f.add(match, duplicate, n, 0) }

// Delay holds the next n commands that match, and those behind them on the
// connection, for d before the server gets them. They arrive even if the client has
// gone away meanwhile, as packets on the way do. n of 0 is no limit. The rule fires
// when the delay begins.
func (f *Faults) Delay(match Match, n int, d time.Duration) *Rule { return f.add(match, delay, n, d) }

// DelayReply lets the server answer the next n commands that match at once, and
// holds each answer, and those behind it, for d from when the server gave it. n of 0 is no
// limit. The rule fires when the delay begins.
func (f *Faults) DelayReply(match Match, n int, d time.Duration) *Rule {
	return f.add(match, delayReply, n, d)
}

func (f *Faults) add(match Match, a action, limit int, d time.Duration) *Rule {
	r := newRule(f.which, match, a, limit, d)
	f.p.mu.Lock()
	defer f.p.mu.Unlock()
	f.p.rules = append(f.p.rules, r)
	return r
}

// Blackhole makes the link go silent in both directions. Connections stay open
// and new ones are accepted. What was sent meanwhile arrives when the blackhole
// ends, whoever has gone away by then, unless the connection was cut. The Faults that
// began it ends it, no other one.
func (f *Faults) Blackhole(on bool) {
	f.p.mu.Lock()
	defer f.p.mu.Unlock()
	switch {
	case on && f.hole == nil:
		f.hole = make(chan struct{})
	case !on && f.hole != nil:
		close(f.hole)
		f.hole = nil
	}
	f.noteLink()
}

// Throttle lets so many bytes per second pass in each direction of each connection;
// 0 is any number again. Of several that concern a connection the least counts.
func (f *Faults) Throttle(bytesPerSecond int) {
	f.p.mu.Lock()
	defer f.p.mu.Unlock()
	f.rate = bytesPerSecond
	f.noteLink()
}

// noteLink notes in the proxy whether it has to mind f's link. p.mu is held.
func (f *Faults) noteLink() {
	f.p.links = slices.DeleteFunc(f.p.links, func(o *Faults) bool { return o == f })
	if f.hole != nil || f.rate > 0 {
		f.p.links = append(f.p.links, f)
	}
}

// Cut closes the connections there are, and returns how many. What they had in
// flight is lost.
func (f *Faults) Cut() int { return f.each((*conn).cut) }

// Reset is Cut by RST.
func (f *Faults) Reset() int { return f.each((*conn).reset) }

func (f *Faults) each(do func(*conn)) int {
	conns := f.p.matching(f.which)
	for _, c := range conns {
		do(c)
	}
	return len(conns)
}

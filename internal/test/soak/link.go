package soak

import (
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/distlock/locker/conformance/faultproxy"
)

// link is the network before one server.
type link struct {
	*faultproxy.Proxy
	messages *faultproxy.Faults // of subscriptions only
	chances  [lateReply + len(delays)]chance
}

// delays are how late commands and replies come.
var delays = [...]time.Duration{5 * time.Millisecond, 50 * time.Millisecond, 250 * time.Millisecond}

// These happen to some of the commands. There is a delay and a lateReply for each of delays.
const (
	loseReply = iota
	hangReply
	duplicate
	delay
	lateReply = delay + len(delays)
)

// chance is how many of a thousand commands a fault happens to.
type chance struct{ atomic.Int32 }

func (c *chance) match(cmd []string) bool {
	n := c.Load()
	return n > 0 && isScript(cmd) && rand.Int32N(1000) < n
}

var isScript = faultproxy.MatchCommand("EVALSHA", "EVAL")

func newLink(upstream string) (*link, error) {
	p, err := faultproxy.New(upstream)
	if err != nil {
		return nil, err
	}
	p.Record(false)
	l := &link{Proxy: p, messages: p.Only(faultproxy.Subscribed)}
	p.DropReply(l.chances[loseReply].match, 0)
	p.HangReply(l.chances[hangReply].match, 0)
	p.Duplicate(l.chances[duplicate].match, 0)
	for i, d := range delays {
		p.Delay(l.chances[delay+i].match, 0, d)
		p.DelayReply(l.chances[lateReply+i].match, 0, d)
	}
	return l, nil
}

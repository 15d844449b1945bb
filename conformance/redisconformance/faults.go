package redisconformance

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/distlock/locker/conformance"
	"github.com/distlock/locker/conformance/faultproxy"
	"github.com/distlock/locker/internal/redisconn"
	"github.com/redis/go-redis/v9"
)

// opOf recognises the commands of this module's strategies.
func opOf(cmd []string) conformance.Op {
	switch {
	case isWatch(cmd):
		return conformance.OpWatch
	case isScript(cmd) && len(cmd) > 1:
		return conformance.Op(redisconn.ScriptName(cmd[1]))
	}
	return ""
}

var (
	isWatch  = faultproxy.MatchCommand("SUBSCRIBE", "PSUBSCRIBE", "SSUBSCRIBE", "BLPOP")
	isScript = faultproxy.MatchCommand("EVAL", "EVALSHA")
)

// once arms a fault for the next command of a kind at whichever server it
// reaches. (A reply that says that the server does not know the script uses up no
// fault.)
func (h *harness) once(op conformance.Op, arm func(*faultproxy.Proxy, faultproxy.Match) *faultproxy.Rule) error {
	var all atomic.Pointer[[]*faultproxy.Rule]
	match := func(cmd []string) bool {
		rules := all.Load()
		return rules != nil && h.Op(cmd) == op &&
			!slices.ContainsFunc(*rules, func(r *faultproxy.Rule) bool { return r.Fired() > 0 })
	}
	var rules []*faultproxy.Rule
	for _, p := range h.proxies {
		rules = append(rules, arm(p, match))
	}
	all.Store(&rules)
	h.later(rules...)
	return nil
}

func (h *harness) LoseCommand(op conformance.Op) error {
	return h.once(op, func(p *faultproxy.Proxy, m faultproxy.Match) *faultproxy.Rule { return p.ResetBefore(m, 1) })
}

// LoseReply closes the connection one time and resets it the next.
func (h *harness) LoseReply(op conformance.Op) error {
	reset := h.lost.Add(1)%2 == 0
	return h.once(op, func(p *faultproxy.Proxy, m faultproxy.Match) *faultproxy.Rule {
		if reset {
			return p.ResetAfter(m, 1)
		}
		return p.DropReply(m, 1)
	})
}

func (h *harness) Repeat(op conformance.Op) error {
	return h.once(op, func(p *faultproxy.Proxy, m faultproxy.Match) *faultproxy.Rule { return p.Duplicate(m, 1) })
}

func (h *harness) DelayReply(op conformance.Op, d time.Duration) error {
	return h.once(op, func(p *faultproxy.Proxy, m faultproxy.Match) *faultproxy.Rule {
		if op == conformance.OpWatch { // its reply looks like a message
			return p.Delay(m, 1, d)
		}
		return p.DelayReply(m, 1, d)
	})
}

func (h *harness) Refuse() error {
	for _, p := range h.proxies {
		p.Refuse(true)
	}
	return nil
}

func (h *harness) BlackHole() error {
	for _, p := range h.proxies {
		p.Blackhole(true)
	}
	return nil
}

func (h *harness) Slow(d time.Duration) error {
	for _, p := range h.proxies {
		h.later(p.DelayReply(faultproxy.MatchAny, 0, d))
	}
	return nil
}

func (h *harness) Sent(op conformance.Op) (most int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.sent[op] == nil {
		for _, p := range h.proxies {
			var n atomic.Int64
			h.sent[op] = append(h.sent[op], &n)
			p.Watch(func(cmd []string) {
				if h.Op(cmd) == op {
					n.Add(1)
				}
			})
		}
	}
	for _, n := range h.sent[op] {
		most = max(most, int(n.Load()))
	}
	return most
}

func (h *harness) Heal() error {
	h.mu.Lock()
	for _, r := range h.rules {
		r.Stop()
	}
	h.rules = nil
	h.mu.Unlock()
	for _, p := range h.proxies {
		p.Refuse(false)
		p.Blackhole(false)
	}
	return nil
}

// CutNotifications ends subscriptions and the connections that wait for an element
// of a list.
func (h *harness) CutNotifications() error {
	if h.Server != nil { // whose other clients are none of the suite's
		for _, p := range h.proxies {
			p.Cut()
		}
		return nil
	}
	return h.masters(context.Background(), func(ctx context.Context, c *redis.Client) error {
		if err := c.ClientKillByFilter(ctx, "TYPE", "pubsub").Err(); err != nil {
			return err
		}
		list, err := c.ClientList(ctx).Result()
		if err != nil {
			return err
		}
		for line := range strings.Lines(list) {
			if id, ok := blocked(line); ok {
				if err := c.ClientKillByFilter(ctx, "ID", id).Err(); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// blocked returns the id of a client that CLIENT LIST shows to be in a BLPOP.
func blocked(line string) (id string, ok bool) {
	for field := range strings.FieldsSeq(line) {
		name, value, _ := strings.Cut(field, "=")
		switch name {
		case "id":
			id = value
		case "cmd":
			ok = value == "blpop"
		}
	}
	return id, ok
}

func (h *harness) ForgetScripts() error {
	return h.masters(context.Background(), func(ctx context.Context, c *redis.Client) error {
		return c.ScriptFlush(ctx).Err()
	})
}

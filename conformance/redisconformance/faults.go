package redisconformance

import (
	"context"
	"strings"
	"time"

	"github.com/distlock/locker/conformance"
	"github.com/distlock/locker/internal/redisdriver"
	"github.com/distlock/locker/internal/respproxy"
)

// opOf tells the scripts of this module's strategies apart.
func opOf(cmd []string) conformance.Op {
	if len(cmd) > 1 && strings.HasPrefix(strings.ToLower(cmd[0]), "eval") {
		return conformance.Op(redisdriver.ScriptName(cmd[1]))
	}
	return ""
}

// match matches the commands of a kind. (A reply that says that the server does
// not know the script uses up no fault.)
func (h *harness) match(op conformance.Op) respproxy.Match {
	return func(cmd []string) bool { return h.Op(cmd) == op }
}

func (h *harness) arm(r *respproxy.Rule) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.rules = append(h.rules, r)
	return nil
}

func (h *harness) LoseReply(op conformance.Op) error {
	return h.arm(h.proxy.DropReply(h.match(op), 1))
}

func (h *harness) Repeat(op conformance.Op) error {
	return h.arm(h.proxy.Duplicate(h.match(op), 1))
}

func (h *harness) DelayReply(op conformance.Op, d time.Duration) error {
	return h.arm(h.proxy.DelayReply(h.match(op), 1, d))
}

func (h *harness) Refuse() error {
	h.proxy.Refuse(true)
	return nil
}

func (h *harness) BlackHole() error {
	h.proxy.Blackhole(true)
	return nil
}

func (h *harness) Heal() error {
	h.mu.Lock()
	for _, r := range h.rules {
		r.Stop()
	}
	h.rules = nil
	h.mu.Unlock()
	h.proxy.Refuse(false)
	h.proxy.Blackhole(false)
	return nil
}

func (h *harness) CutNotifications() error {
	return h.direct.ClientKillByFilter(context.Background(), "TYPE", "pubsub").Err()
}

func (h *harness) ForgetScripts() error {
	return h.direct.ScriptFlush(context.Background()).Err()
}

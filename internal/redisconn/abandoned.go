package redisconn

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// abandonedCommands holds commands whose callers returned before the reply.
type abandonedCommands struct {
	mu       sync.Mutex
	commands []*Command
	n        atomic.Int32 // len(commands): where it is 0, nobody needs mu
}

func (a *abandonedCommands) add(c *Command) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.commands = append(a.commands, c)
	a.prune()
}

// prune forgets the commands that are resolved; a.mu is held.
func (a *abandonedCommands) prune() {
	now := time.Now()
	a.commands = slices.DeleteFunc(a.commands, func(c *Command) bool {
		select {
		case <-c.resolved:
			return true
		default:
			return now.After(c.expiry)
		}
	})
	a.n.Store(int32(len(a.commands)))
}

// await returns when each command that matches is resolved, or with an error when ctx ends.
func (a *abandonedCommands) await(ctx context.Context, matches func(*Command) bool) error {
	a.mu.Lock()
	a.prune()
	var all []*Command
	for _, c := range a.commands {
		if matches(c) {
			all = append(all, c)
		}
	}
	a.mu.Unlock()
	for _, c := range all {
		expired := time.NewTimer(time.Until(c.expiry))
		select {
		case <-c.resolved:
		case <-expired.C:
		case <-ctx.Done():
			expired.Stop()
			return ctx.Err()
		}
		expired.Stop()
	}
	return nil
}

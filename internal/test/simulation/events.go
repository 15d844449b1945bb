package simulation

import (
	"context"
	"maps"
	"sync"

	"github.com/distlock/locker"
)

// eventCount is an Observer that counts.
type eventCount struct {
	mu    sync.Mutex
	count map[locker.EventKind]int
	kept  int // grants of kept locks
}

func (c *eventCount) Observe(_ context.Context, e locker.Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.count == nil {
		c.count = map[locker.EventKind]int{}
	}
	c.count[e.Kind]++
	if e.Kind == locker.EventAcquired && e.Kept {
		c.kept++
	}
}

func (c *eventCount) n() map[locker.EventKind]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.count)
}

func (c *eventCount) ofKept() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.kept
}

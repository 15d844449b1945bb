package blpop

import (
	"errors"
	"fmt"
	"time"

	"github.com/distlock/locker/internal/redisconn"
	"github.com/distlock/locker/strategy/internal/layouts"
)

// The keys of a Locker that waits: the queue, AuxKey("locker:queue:", key), a hash for each
// lock key (queue.lua has its fields), and inboxes, lists.

const (
	// shortGrant is how long a lock lasts that a release has handed over, at most the TTL.
	shortGrant = layouts.BlpopGrant
	// keepFor is how long queue and inbox outlive the last word of a process.
	keepFor = 5 * time.Second
)

// limits is the Lua file with the durations that scripts and Go share.
type limits struct{}

// ReadFile implements [redisconn.Files].
func (limits) ReadFile(name string) ([]byte, error) {
	if name != "lua/limits.lua" {
		return nil, errors.ErrUnsupported
	}
	return fmt.Appendf(nil, "local GRANT, KEEP = %d, %d\n", shortGrant.Milliseconds(), keepFor.Milliseconds()), nil
}

// name returns the inbox for a lock key. All of a Locker's keys share it; a script may
// push only to keys of its own slot, so on a cluster it is one for each slot.
func (b *inboxes) name(key string) string {
	if b.cluster {
		return "locker:inbox:{" + redisconn.SlotTag(key) + "}:" + b.id
	}
	return "locker:inbox:" + b.id
}

package layouts

import (
	"github.com/distlock/locker/driver"
	"github.com/distlock/locker/internal/redisdriver"
)

// isSetnxs recognises a lock of setnx: a string, the claim that holds it.
func isSetnxs(e *redisdriver.Entry, h *driver.Holder) bool {
	if e.Kind != "string" || !claim4.MatchString(e.Value) {
		return false
	}
	h.ID, h.Owner, h.Token = e.Value, e.Value, e.Counter
	return true
}

// isRedlocks recognises a lock of redlock on one of its nodes: a string like setnx's.
func isRedlocks(e *redisdriver.Entry, h *driver.Holder) bool {
	if e.Kind != "string" || !claim8.MatchString(e.Value) {
		return false
	}
	h.ID, h.Owner, h.Token = e.Value, e.Value, e.Counter
	return true
}

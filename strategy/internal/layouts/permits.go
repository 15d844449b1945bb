package layouts

import (
	"fmt"

	"github.com/distlock/locker/driver"
	"github.com/distlock/locker/internal/redisdriver"
)

// isPermits recognises a key with permits, whatever strategy keeps them.
func isPermits(e *redisdriver.Entry, h *driver.Holder) bool {
	if n, _ := fmt.Sscanf(e.Fields[""], "permits %d %d", &h.Limit, &h.Permits); n != 2 {
		return false
	}
	h.Held = h.Permits > 0 // else somebody bids, and is next
	h.Token = e.Counter
	return true
}

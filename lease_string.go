package locker

import (
	"errors"
	"fmt"
)

// String names the key, the token and the state of the lease, for logs: held, lost or
// unlocked. Like [Lease.Err] it looks at the clock, and sends no command.
func (l *Lease) String() string {
	if l.zero() {
		return "no lease"
	}
	state := "held"
	switch err := l.Err(); {
	case errors.Is(err, ErrLost):
		state = "lost"
	case err != nil:
		state = "unlocked"
	}
	return fmt.Sprintf("lease of %s, token %d, %s", quoteKey(l.Key()), l.Token(), state)
}

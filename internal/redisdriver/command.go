package redisdriver

import (
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/driver"
	"github.com/distlock/locker/internal/redisconn"
)

// command is a command about a claim. Its words point to the fields.
type command struct {
	redisconn.Command
	req                     driver.Request
	fence, channel, publish string
	ttl, retention          int64
}

var commands = sync.Pool{New: func() any { return new(command) }}

// free gives c back when its result is known, unless it is abandoned.
func (c *command) free() {
	if !c.Abandoned() {
		commands.Put(c)
	}
}

// command makes the command that runs s; args follow the script's named arguments. Trailing
// arguments that have their defaults are left out.
func (d *Driver) command(s *redisconn.Script, req driver.Request, args ...any) *command {
	c := commands.Get().(*command)
	c.Prepare(s, req.Key)
	c.Group, c.req = req.ID, req
	c.appendKeys(s)
	needed := len(c.Words) // the words behind have their defaults
	for _, name := range s.Args {
		if c.appendArg(d, name, len(args) > 0) {
			needed = len(c.Words)
		}
	}
	if len(args) == 0 {
		c.Words = c.Words[:needed]
	}
	c.Words = append(c.Words, args...)
	return c
}

func (c *command) appendKeys(s *redisconn.Script) {
	keys := s.Keys
	for i, name := range keys {
		switch {
		case name == "lock":
			c.Words = append(c.Words, &c.req.Key)
		case name != "fence":
			c.Words = append(c.Words, redisconn.AuxKey("locker:"+name+":", c.req.Key))
		case c.req.Fencing || i < len(keys)-1:
			// (While a slot moves, its nodes refuse a command with a key that is there
			// and one that is not: none is named in vain.)
			c.fence = FenceKey(c.req.Key)
			c.Words = append(c.Words, &c.fence)
		}
	}
	c.SetKeys()
}

// appendArg appends an argument, and reports whether it differs from its default. more says
// that others follow those that the script names.
func (c *command) appendArg(d *Driver, name string, more bool) (needed bool) {
	switch name {
	case "claim":
		c.Words = append(c.Words, &c.req.ID)
	case "ttl":
		c.ttl = c.req.TTL.Milliseconds()
		c.Words = append(c.Words, &c.ttl)
	case "retention":
		if c.retention = 0; c.req.Fencing { // as long as the lock, and beyond it
			c.retention = (c.req.TTL + max(2*c.req.TTL, minRetention)).Milliseconds()
		}
		c.Words = append(c.Words, &c.retention)
	case "fence":
		c.fence = FenceKey(c.req.Key)
		c.Words = append(c.Words, &c.fence)
	case "queue", "turns", "places":
		c.Words = append(c.Words, redisconn.AuxKey("locker:"+name+":", c.req.Key))
	case "tokens":
		c.Words = append(c.Words, max(c.req.Tokens, 1))
		return c.req.Tokens > 1
	case "owner":
		named := c.req.Owner != c.req.ID
		if named {
			c.Words = append(c.Words, &c.req.Owner)
		} else {
			c.Words = append(c.Words, &unnamed)
		}
		return named
	case "weight":
		c.Words = append(c.Words, c.req.Permits)
		return true
	case "limit":
		c.Words = append(c.Words, c.req.Limit)
		return true
	case "waited":
		if !c.req.Waits {
			c.Words = append(c.Words, &unnamed)
			return false
		}
		c.Words = append(c.Words, c.req.Waited.Milliseconds())
		return c.req.Limit > 0 || c.req.Waited >= time.Millisecond
	case "permits":
		needed := c.req.Waits && c.req.Waited >= time.Millisecond
		if needed || more { // else it is left out, and its name is two allocations
			c.Words = append(c.Words, redisconn.AuxKey("locker:permits:", c.req.Key))
		}
		return needed
	case "channel":
		if d.channels == nil || !more && d.channels.IsDefault(c.req.Key) {
			return false
		}
		c.appendChannel(d)
	default:
		return false
	}
	return true
}

// appendChannel appends the channel of releases and the command that publishes to it.
func (c *command) appendChannel(d *Driver) {
	c.channel, c.publish = d.channels.Of(c.req.Key)
	c.Words = append(c.Words, &c.channel, &c.publish)
}

var unnamed = ""

// minRetention is how long a fencing counter is kept after its lock at least; see [FenceKey].
const minRetention = 10 * time.Minute

// answerOf reads the reply of an Acquire script that asked for that many tokens; [Protocol]
// has the replies.
func answerOf(reply any, tokens int) (driver.Answer, error) {
	r, _ := reply.([]any)
	if len(r) < 2 {
		return driver.Answer{}, unexpected(reply)
	}
	switch r[0] {
	case int64(1):
		if token, ok := r[1].(int64); ok {
			a := driver.Answer{Granted: true, Token: token}
			if token != 0 {
				a.Tokens = max(tokens, 1)
				if len(r) > 2 { // fewer were reserved
					few, _ := r[2].(int64)
					a.Tokens = int(few)
				}
			}
			return a, nil
		}
	case int64(0):
		if pttl, ok := r[1].(int64); ok && len(r) > 2 {
			a := driver.Answer{Remaining: remaining(pttl), NoWakeUp: r[2] == int64(1)}
			if len(r) > 3 {
				a.Owner, _ = r[3].(string)
				a.Asked = len(r) > 4
			}
			return a, nil
		}
	case int64(-1):
		return driver.Answer{}, fmt.Errorf("%w: it is a %v; it is left alone", locker.ErrConflict, r[1])
	}
	return driver.Answer{}, unexpected(reply)
}

// remaining returns the rest of a TTL by what PTTL replied, rounded up; 0 for a key that never
// expires, or is gone, or lasts for longer than a Duration can hold.
func remaining(pttl int64) time.Duration {
	if pttl < 0 || pttl >= math.MaxInt64/int64(time.Millisecond) {
		return 0
	}
	return time.Duration(pttl+1) * time.Millisecond
}

func verdict(reply any) error {
	_, err := listeners(reply)
	return err
}

// listeners returns how many were sent a release, by its reply.
func listeners(reply any) (int, error) {
	switch n, ok := reply.(int64); {
	case ok && n > 0:
		return int(n - 1), nil
	case ok && n == 0:
		return 0, errLost
	}
	return 0, unexpected(reply)
}

var errLost = fmt.Errorf("the claim does not hold the key: %w", locker.ErrLost)

func unexpected(reply any) error {
	return &driver.StoreError{Err: fmt.Errorf("unexpected reply %v of a script", reply), Permanent: true}
}

// Package redisfence checks fencing tokens in the Redis script that writes the data.
//
//	g, err := redisfence.New(rdb)
//	...
//	err = g.Set(ctx, "report:today", lease.Token(), report, 0)
//	if errors.Is(err, fence.ErrStale) {
//		// a later owner has written, and its value stands
//	}
//
// [Guard.Set] compares the token and writes a string; [Guard.Run] does so for any script.
// [Guard.Admit] compares alone: a write that follows it may be late.
//
// # Keys
//
// The greatest token that was admitted for key stands in a string of its own, the guard's key:
// locker:guard:{key}, in the cluster slot of key. On a cluster the keys that [Guard.Run] gives to a
// script lie in the slot of its key: name them with its hash tag. The key of the data is not the
// key of the lock.
//
// # How long a token is remembered
//
// For ever, unless [WithRetention] bounds it. Without the guard's key a late writer is admitted: so
// it is after an eviction (use maxmemory-policy noeviction), FLUSHALL, DEL or the end of the
// retention. One script writes the data and the guard's key, so Redis replicates and saves them
// together: a failover or restart that loses a write loses its token with it.
//
// # Commands that are lost or sent twice
//
// A script may be applied and its reply lost. The client (go-redis, see MaxRetries) or the caller
// sends it again then. Its token is equal, and is admitted; if a later owner came between the two,
// the second one is refused and changes nothing. So the body of a script may run twice with one
// token: let it set, as Set does, and not count.
//
// A command may arrive after its caller has given up, was paused or has died. Its token comes with
// it, and is judged when it arrives.
//
// Redis 6.0 or later. Commands: EVALSHA, EVAL, and in scripts GET, SET and those of a body. An
// ACL allows the keys of the data and ~locker:guard:*.
package redisfence

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/distlock/locker/fence"
	"github.com/distlock/locker/internal/redisconn"
	"github.com/redis/go-redis/v9"
)

// Guard checks tokens on Redis. It may be used by many goroutines.
type Guard struct {
	rdb       redis.UniversalClient
	prefix    string
	retention time.Duration
}

// Option configures a Guard.
type Option func(*Guard) error

// WithPrefix puts prefix before the name of each guard's key, in place of locker:guard:. All
// Guards of one resource use one prefix.
func WithPrefix(prefix string) Option {
	return func(g *Guard) error {
		if prefix == "" || strings.ContainsAny(prefix, "{}") {
			return fmt.Errorf("redisfence: %w: want a prefix without braces, got %q", fence.ErrInvalid, prefix)
		}
		g.prefix = prefix
		return nil
	}
}

// WithRetention lets a guard's key expire d after the last token was admitted, by the server's
// clock. From then on a late writer is admitted: d has to be longer than any process may be
// paused, and any message be under way; days, not minutes. It is at least an hour. Default: for ever.
func WithRetention(d time.Duration) Option {
	return func(g *Guard) error {
		if d < time.Hour {
			return fmt.Errorf("redisfence: %w: want a retention of an hour or more, got %v", fence.ErrInvalid, d)
		}
		g.retention = d
		return nil
	}
}

// New returns a Guard that uses rdb, which stays the caller's. It sends nothing. A [*redis.Ring]
// is refused: when one of its servers is down, it moves keys to others, which know no tokens.
func New(rdb redis.UniversalClient, opts ...Option) (*Guard, error) {
	if _, ring := rdb.(*redis.Ring); ring || rdb == nil {
		return nil, fmt.Errorf("redisfence: %w: want a client of one server, Sentinel or cluster, got %T", fence.ErrInvalid, rdb)
	}
	g := &Guard{rdb: rdb, prefix: "locker:guard:"}
	for _, opt := range opts {
		if opt == nil {
			return nil, fmt.Errorf("redisfence: %w: want an Option, got nil", fence.ErrInvalid)
		}
		if err := opt(g); err != nil {
			return nil, err
		}
	}
	return g, nil
}

// check is the head of every script. The guard's key comes before the other keys, the token and the
// retention before the other arguments. Tokens are compared by length and digits, as Lua's numbers
// are exact only to 2^53. Something else at the guard's key is an error: it stands for an unknown
// token. The token is written before the body runs: if the body fails, earlier owners stay out.
const check = `
do
	local guard, token, retention = table.remove(KEYS, 1), table.remove(ARGV, 1), table.remove(ARGV, 1)
	local seen = redis.call('GET', guard) or '0'
	if not seen:find('^%d+$') then return redis.error_reply('NOTOKEN the key of the guard has something else') end
	if #seen > #token or #seen == #token and seen > token then return redis.error_reply('STALE ' .. seen) end
	if retention == '0' then redis.call('SET', guard, token) else redis.call('SET', guard, token, 'PX', retention) end
end
`

var (
	admit = NewScript(`return redis.status_reply('OK')`)
	set   = NewScript(`if ARGV[2] == '0' then return redis.call('SET', KEYS[1], ARGV[1]) end
return redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])`)
)

// Script is a Lua script that runs only with a token that is admitted.
type Script struct{ script *redis.Script }

// NewScript returns a Script that runs body after the check. The body sees the KEYS and ARGV that
// are given to [Guard.Run].
func NewScript(body string) *Script { return &Script{redis.NewScript(check + body)} }

// Run runs s if token is admitted for key, and returns what the body does. It fails with
// [fence.ErrStale] if a greater token was admitted, and with [fence.ErrInvalid] for a bad key or
// token; the body has not run then. After another error it may have run, or not. A body that fails leaves the
// token admitted. A body that returns nothing gives nil and no error. Run takes one command, and two if the
// server does not have the script yet.
func (g *Guard) Run(ctx context.Context, s *Script, key string, token int64, keys []string, args ...any) (any, error) {
	if err := fence.Validate(key, token); err != nil {
		return nil, err
	}
	if g == nil || g.rdb == nil {
		return nil, fmt.Errorf("redisfence: %w: want a Guard of New, got an empty one", fence.ErrInvalid)
	}
	if s == nil || s.script == nil {
		return nil, fmt.Errorf("redisfence: %w: want a Script of NewScript, got none", fence.ErrInvalid)
	}
	keys = append([]string{redisconn.AuxKey(g.prefix, key)}, keys...)
	args = append([]any{token, g.retention.Milliseconds()}, args...)
	reply, err := s.script.Run(ctx, g.rdb, keys, args...).Result()
	if err == nil || errors.Is(err, redis.Nil) { // a body that returns nothing
		return reply, nil
	}
	var refusal redis.Error
	if errors.As(err, &refusal) {
		if seen, stale := strings.CutPrefix(refusal.Error(), "STALE "); stale {
			n, _ := strconv.ParseInt(seen, 10, 64)
			return nil, &fence.StaleError{Key: key, Token: token, Seen: n}
		}
	}
	return nil, fmt.Errorf("redisfence: key %s: %w", fence.Quote(key), err)
}

// Set writes value to key, as SET does, if token is admitted for key. The value expires after ttl, which is a millisecond
// or more; never, if ttl is 0. A key that begins with locker: or the guard's prefix is refused: a value there would replace
// what the library, or another key's guard, remembers. Set takes as many commands as [Guard.Run].
func (g *Guard) Set(ctx context.Context, key string, token int64, value any, ttl time.Duration) error {
	if ttl < 0 || ttl > 0 && ttl < time.Millisecond {
		return fmt.Errorf("redisfence: %w: key %s: want a ttl of 0, or 1ms or more, got %v", fence.ErrInvalid, fence.Quote(key), ttl)
	}
	if strings.HasPrefix(key, "locker:") || g != nil && g.prefix != "" && strings.HasPrefix(key, g.prefix) {
		return fmt.Errorf("redisfence: %w: key %s: want one that begins neither with locker: nor with the guard's prefix", fence.ErrInvalid, fence.Quote(key))
	}
	_, err := g.Run(ctx, set, key, token, []string{key}, value, ttl.Milliseconds())
	return err
}

// Admit implements [fence.Guard]. It is for resources outside of Redis that cannot check a token in
// the step that writes: between Admit and such a write a later owner may come. Admit takes as
// many commands as [Guard.Run].
func (g *Guard) Admit(ctx context.Context, key string, token int64) error {
	_, err := g.Run(ctx, admit, key, token, nil)
	return err
}

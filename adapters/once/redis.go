package once

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/distlock/locker/adapters/internal/check"
)

// Redis is a [Store] in Redis, 6.0 or newer, which all processes share: a repetition gets the first answer from any of
// them, also when the first process has died. An answer is a string; Put and Get are one command each. Make it with
// [NewRedis].
type Redis struct {
	rdb    redis.UniversalClient
	prefix string
}

// NewRedis makes a Store of a client, which may be the one that locks. An answer stands at prefix, "answer:" and the key of
// its request. Programs whose Lockers have different prefixes need different ones here, too.
func NewRedis(rdb redis.UniversalClient, prefix string) (*Redis, error) {
	if rdb == nil {
		return nil, fmt.Errorf("once: %w", check.Invalid("NewRedis: the client is nil"))
	}
	return &Redis{rdb, prefix + "answer:"}, nil
}

// The value is the token, a space and the answer as JSON. One SET writes it with its end, so that no answer stays for
// ever. A token is below 2^53, which a Lua number has exactly. A script that is sent twice stores the same answer,
// which lasts for ttl from the second time. A Put that arrives after a later one changes nothing.
var putScript = redis.NewScript(`local kept = redis.call('GETRANGE', KEYS[1], 0, 17)
local token = string.match(kept, '^(%d+) {')
if kept ~= '' and not token then
  return redis.error_reply('ERR something else than an answer is there')
end
if token and tonumber(token) > tonumber(ARGV[2]) then
  return 0
end
redis.call('SET', KEYS[1], ARGV[2] .. ' ' .. ARGV[1], 'PX', ARGV[3])
return 1`)

// Put implements [Store].
func (s *Redis) Put(ctx context.Context, key string, a Answer, ttl time.Duration) error {
	text, err := json.Marshal(a)
	if err == nil {
		err = putScript.Run(ctx, s.rdb, []string{s.prefix + key}, text, a.Token, max(ttl.Milliseconds(), 1)).Err()
	}
	if err != nil {
		return fmt.Errorf("once: put %q: %w", key, err)
	}
	return nil
}

// Get implements [Store].
func (s *Redis) Get(ctx context.Context, key string) (a Answer, ok bool, err error) {
	value, err := s.rdb.Get(ctx, s.prefix+key).Bytes()
	if errors.Is(err, redis.Nil) {
		return Answer{}, false, nil
	}
	if err == nil {
		_, text, _ := bytes.Cut(value, []byte(" "))
		err = json.Unmarshal(text, &a)
	}
	if err != nil {
		return Answer{}, false, fmt.Errorf("once: get %q: %w", key, err)
	}
	return a, true, nil
}

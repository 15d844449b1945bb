package once

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/distlock/locker/adapters/internal/check"
)

// Redis is a [Store] in Redis, 6.0 or newer, which all processes share: a repetition gets the first answer from any of
// them, also when the first process has died. An answer is a hash; Put and Get are one command each. Make it with
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

// A token is below 2^53: a Lua number has it exactly. Sent twice: it stores the same answer, which lasts for ttl from
// the second time.
var putScript = redis.NewScript(`local token = redis.call('HGET', KEYS[1], 'token')
if token and tonumber(token) > tonumber(ARGV[2]) then
  return 0
end
redis.call('HSET', KEYS[1], 'answer', ARGV[1], 'token', ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[3])
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
	text, err := s.rdb.HGet(ctx, s.prefix+key, "answer").Bytes()
	if errors.Is(err, redis.Nil) {
		return Answer{}, false, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &a)
	}
	if err != nil {
		return Answer{}, false, fmt.Errorf("once: get %q: %w", key, err)
	}
	return a, true, nil
}

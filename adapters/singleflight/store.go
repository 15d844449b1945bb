package singleflight

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// Result is a value as a [Store] keeps it.
type Result struct {
	Value []byte
	Token int64         // the fencing token of the lock under which it was computed
	Took  time.Duration // to compute

	Remaining time.Duration // until the Store drops it; set by Get
}

// Store keeps results. Its methods are called by many goroutines.
type Store interface {
	// Get returns the result that is kept under key; ok is false if there is none.
	Get(ctx context.Context, key string) (r Result, ok bool, err error)
	// Put keeps r for ttl, unless there is a result with a greater Token.
	Put(ctx context.Context, key string, r Result, ttl time.Duration) error
}

// Redis is a [Store] in Redis, 6.0 or newer. A result is a hash; Get and Put are one command each. Make it with [NewRedis].
type Redis struct{ rdb redis.Scripter }

// NewRedis makes a Store of a client, which may be the one that locks.
func NewRedis(rdb redis.UniversalClient) *Redis { return &Redis{rdb} }

// Tokens are below 2^53: a Lua number has them exactly. A result that is sent twice is the same one.
var (
	getScript = redis.NewScript(`local r = redis.call('HMGET', KEYS[1], 'value', 'token', 'took')
return {r[1], r[2], r[3], redis.call('PTTL', KEYS[1])}`)
	putScript = redis.NewScript(`local token = redis.call('HGET', KEYS[1], 'token')
if token and tonumber(token) > tonumber(ARGV[2]) then
  return 0
end
redis.call('HSET', KEYS[1], 'value', ARGV[1], 'token', ARGV[2], 'took', ARGV[3])
redis.call('PEXPIRE', KEYS[1], ARGV[4])
return 1`)
)

// Get implements [Store].
func (s *Redis) Get(ctx context.Context, key string) (Result, bool, error) {
	reply, err := getScript.Run(ctx, s.rdb, []string{key}).Slice()
	if err != nil {
		return Result{}, false, fmt.Errorf("singleflight: get %q: %w", key, err)
	}
	value, ok := reply[0].(string)
	if !ok {
		return Result{}, false, nil
	}
	token, err1 := strconv.ParseInt(fmt.Sprint(reply[1]), 10, 64)
	took, err2 := strconv.ParseInt(fmt.Sprint(reply[2]), 10, 64)
	if err := errors.Join(err1, err2); err != nil {
		return Result{}, false, fmt.Errorf("singleflight: %q holds no result: %w", key, err)
	}
	left, _ := reply[3].(int64)
	return Result{[]byte(value), token, time.Duration(took), time.Duration(left) * time.Millisecond}, true, nil
}

// Put implements [Store].
func (s *Redis) Put(ctx context.Context, key string, r Result, ttl time.Duration) error {
	err := putScript.Run(ctx, s.rdb, []string{key}, r.Value, r.Token, int64(r.Took), max(ttl.Milliseconds(), 1)).Err()
	if err != nil {
		return fmt.Errorf("singleflight: put %q: %w", key, err)
	}
	return nil
}

// Memory is a [Store] in the memory of this process, for tests. It drops what has run out when it has twice as many
// results as the last time. Make it with [NewMemory].
type Memory struct {
	mu   sync.Mutex
	all  map[string]kept
	most int
}

type kept struct {
	Result
	until time.Time
}

// NewMemory makes an empty Store.
func NewMemory() *Memory { return &Memory{all: make(map[string]kept)} }

// Get implements [Store].
func (m *Memory) Get(_ context.Context, key string) (Result, bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	k := m.all[key]
	k.Remaining = time.Until(k.until)
	return k.Result, k.Remaining > 0, nil
}

// Put implements [Store].
func (m *Memory) Put(_ context.Context, key string, r Result, ttl time.Duration) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	if old, ok := m.all[key]; ok && now.Before(old.until) && old.Token > r.Token {
		return nil
	}
	m.all[key] = kept{r, now.Add(ttl)}
	if len(m.all) > m.most {
		for key, k := range m.all {
			if !now.Before(k.until) {
				delete(m.all, key)
			}
		}
		m.most = max(2*len(m.all), 16)
	}
	return nil
}

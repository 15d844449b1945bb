package singleflight

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/distlock/locker/adapters/internal/newest"
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

// Redis is a [Store] in Redis, 6.0 or newer. A result is a string: its token, the nanoseconds that it took, and its value.
// Get and Put are one command each. Make it with [NewRedis].
type Redis struct{ rdb redis.Scripter }

// NewRedis makes a Store of a client, which may be the one that locks. A result stands at the prefix of [WithPrefix],
// "result:" and its key. The Locker's prefix is not before that: programs that share a Redis and whose Lockers have different
// prefixes need different ones here, too, or they read each other's results.
func NewRedis(rdb redis.UniversalClient) *Redis { return &Redis{rdb} }

// Get implements [Store].
func (s *Redis) Get(ctx context.Context, key string) (Result, bool, error) {
	v, ok, err := newest.Get(ctx, s.rdb, key)
	if err != nil {
		return Result{}, false, fmt.Errorf("singleflight: get %q: %w", key, err)
	}
	if !ok {
		return Result{}, false, nil
	}
	number, value, ok := bytes.Cut(v.Data, []byte(" "))
	took, err := strconv.ParseInt(string(number), 10, 64)
	if !ok || err != nil {
		return Result{}, false, fmt.Errorf("singleflight: get %q: another program has written there", key)
	}
	return Result{value, v.Token, time.Duration(took), v.Left}, true, nil
}

// Put implements [Store].
func (s *Redis) Put(ctx context.Context, key string, r Result, ttl time.Duration) error {
	data := append(strconv.AppendInt(nil, int64(r.Took), 10), ' ')
	if err := newest.Put(ctx, s.rdb, key, r.Token, append(data, r.Value...), ttl); err != nil {
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

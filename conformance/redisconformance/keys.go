package redisconformance

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/distlock/locker/conformance"
	"github.com/redis/go-redis/v9"
)

func (h *harness) Keys(ctx context.Context) ([]conformance.StoredKey, error) {
	var mu sync.Mutex
	var keys []conformance.StoredKey
	err := h.masters(ctx, func(ctx context.Context, c *redis.Client) error {
		scan := c.Scan(ctx, 0, "*"+h.KeyMark()+"*", 1000).Iterator()
		for scan.Next(ctx) {
			ttl, err := c.PTTL(ctx, scan.Val()).Result()
			if err != nil {
				return err
			}
			mu.Lock()
			if ttl != -2 { // gone meanwhile
				keys = append(keys, conformance.StoredKey{Name: scan.Val(), TTL: ttl})
			}
			mu.Unlock()
		}
		return scan.Err()
	})
	return keys, err
}

func (h *harness) Holder(ctx context.Context, key string) (string, error) {
	switch kind, err := h.direct.Type(ctx, key).Result(); {
	case err != nil:
		return "", err
	case kind == "hash":
		fields, err := h.direct.HKeys(ctx, key).Result()
		return fmt.Sprint(fields), err
	case kind == "string":
		v, err := h.direct.Get(ctx, key).Result()
		if errors.Is(err, redis.Nil) {
			return "", nil
		}
		return v, err
	}
	return "", nil
}

func (h *harness) TTL(ctx context.Context, key string) (time.Duration, error) {
	ttl, err := h.direct.PTTL(ctx, key).Result()
	if ttl == -2 {
		ttl = 0
	}
	return ttl, err
}

// Breaker.

func (h *harness) Break(ctx context.Context, key string) error {
	return h.direct.Del(ctx, key).Err()
}

func (h *harness) Expire(ctx context.Context, key string) error {
	for { // a renewal may come in between
		there, err := h.direct.PExpire(ctx, key, time.Millisecond).Result()
		if err != nil || !there {
			return err
		}
	}
}

func (h *harness) Steal(ctx context.Context, key string) error {
	kind, err := h.direct.Type(ctx, key).Result()
	if err != nil {
		return err
	}
	_, err = h.direct.TxPipelined(ctx, func(p redis.Pipeliner) error {
		p.Del(ctx, key)
		if kind == "hash" {
			p.HSet(ctx, key, "0f0e0d0c-0000-4000-8000-000000000000:1", 1)
		} else {
			p.Set(ctx, key, "0f0e0d0c-0000-4000-8000-000000000000:1", 0)
		}
		p.PExpire(ctx, key, time.Minute)
		return nil
	})
	return err
}

func (h *harness) Flush(ctx context.Context) error {
	if h.Server != nil {
		return h.flushOwn(ctx)
	}
	return h.masters(ctx, func(ctx context.Context, c *redis.Client) error { return c.FlushAll(ctx).Err() })
}

// Planter.

var foreigners = map[string]struct {
	conflict bool
	plant    func(ctx context.Context, p redis.Pipeliner, key string)
}{
	"string with a TTL": {false, func(ctx context.Context, p redis.Pipeliner, key string) { p.Set(ctx, key, "x", time.Hour) }},
	"string":            {false, func(ctx context.Context, p redis.Pipeliner, key string) { p.Set(ctx, key, "x", 0) }},
	"hash with a TTL": {false, func(ctx context.Context, p redis.Pipeliner, key string) {
		p.HSet(ctx, key, "x", "y")
		p.PExpire(ctx, key, time.Hour)
	}},
	"hash": {false, func(ctx context.Context, p redis.Pipeliner, key string) { p.HSet(ctx, key, "x", 1) }},
	"hash of many fields": {false, func(ctx context.Context, p redis.Pipeliner, key string) {
		for i := range 10_000 {
			p.HSet(ctx, key, fmt.Sprint("x", i), i)
		}
	}},
	"hash of counts": {false, func(ctx context.Context, p redis.Pipeliner, key string) { p.HSet(ctx, key, "x", 1, "y", 2) }},
	"hash with a Redisson holder and more": {false, func(ctx context.Context, p redis.Pipeliner, key string) {
		p.HSet(ctx, key, "0f0e0d0c-0000-4000-8000-000000000000:1", "1.5", "", "x")
	}},
	"empty string": {false, func(ctx context.Context, p redis.Pipeliner, key string) { p.Set(ctx, key, "", 0) }},
	"long string": {false, func(ctx context.Context, p redis.Pipeliner, key string) {
		p.Set(ctx, key, strings.Repeat("x\x00\xff", 1<<20), 0)
	}},
	"long list": {true, func(ctx context.Context, p redis.Pipeliner, key string) {
		for i := range 10_000 {
			p.RPush(ctx, key, i)
		}
	}},
	"list": {true, func(ctx context.Context, p redis.Pipeliner, key string) { p.RPush(ctx, key, "x") }},
	"set":  {true, func(ctx context.Context, p redis.Pipeliner, key string) { p.SAdd(ctx, key, "x") }},
	"zset": {true, func(ctx context.Context, p redis.Pipeliner, key string) { p.ZAdd(ctx, key, redis.Z{Member: "x"}) }},
	"stream": {true, func(ctx context.Context, p redis.Pipeliner, key string) {
		p.XAdd(ctx, &redis.XAddArgs{Stream: key, Values: []string{"a", "b"}})
	}},
}

func (h *harness) Foreigners() []conformance.Foreigner {
	var all []conformance.Foreigner
	for name, f := range foreigners {
		all = append(all, conformance.Foreigner{Name: name, Conflict: f.conflict})
	}
	return all
}

func (h *harness) Plant(ctx context.Context, key, foreigner string) error {
	_, err := h.direct.TxPipelined(ctx, func(p redis.Pipeliner) error {
		foreigners[foreigner].plant(ctx, p, key)
		if h.Server != nil { // where it is not to stay, whatever becomes of us
			p.Expire(ctx, key, 10*time.Minute)
		}
		return nil
	})
	if err != nil {
		return err
	}
	content, err := h.content(ctx, key)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.planted[key] = content
	return err
}

func (h *harness) Intact(ctx context.Context, key, _ string) (bool, error) {
	content, err := h.content(ctx, key)
	h.mu.Lock()
	defer h.mu.Unlock()
	return content == h.planted[key], err
}

// content returns all that is at key. The order of a large hash's fields changes by itself.
func (h *harness) content(ctx context.Context, key string) (string, error) {
	if kind, err := h.direct.Type(ctx, key).Result(); err != nil || kind == "hash" {
		fields, herr := h.direct.HGetAll(ctx, key).Result()
		return fmt.Sprint(fields), errors.Join(err, herr)
	}
	dump, err := h.direct.Dump(ctx, key).Result()
	if errors.Is(err, redis.Nil) {
		return "", nil
	}
	return dump, err
}

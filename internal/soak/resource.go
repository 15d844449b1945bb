package soak

import (
	"context"
	"errors"

	"github.com/redis/go-redis/v9"
)

// The guarded resource is a hash on a server of its own: for each key the greatest
// token that has written, and how many writes came with a smaller one.
var writeScript = redis.NewScript(`
local seen = tonumber(redis.call('HGET', KEYS[1], ARGV[1]) or '0')
if tonumber(ARGV[2]) < seen then
  redis.call('HINCRBY', KEYS[1], 'stale', 1)
  return 0
end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
return 1`)

type resourceClient struct {
	rdb  *redis.Client
	name string // the strategy's: each has a resource of its own
}

// write reports whether the resource has accepted a write under token.
func (c *resourceClient) write(ctx context.Context, key string, token int64) (bool, error) {
	n, err := writeScript.Run(ctx, c.rdb, []string{c.name}, key, token).Int()
	return n == 1, err
}

// stale is how many writes the resource has refused.
func (c *resourceClient) stale(ctx context.Context) (int, error) {
	n, err := c.rdb.HGet(ctx, c.name, "stale").Int()
	if errors.Is(err, redis.Nil) {
		return 0, nil
	}
	return n, err
}

package soak

import (
	"context"

	"github.com/distlock/locker/internal/test/redistest"
	"github.com/redis/go-redis/v9"
)

// The guarded resource is a hash for each arena: of every key the greatest token that has
// written. A smaller one is refused.
var writeScript = redis.NewScript(`
if tonumber(ARGV[2]) < tonumber(redis.call('HGET', KEYS[1], ARGV[1]) or '0') then
  return 0
end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
return 1`)

type resource struct {
	rdb   *redis.Client
	arena string
}

// newResource starts the server, and returns its socket.
func newResource(st *stage) (socket string) { return redistest.Start(st).Socket() }

func dialResource(socket, arena string) resource {
	return resource{redis.NewClient(&redis.Options{Network: "unix", Addr: socket}), arena}
}

// write reports whether the resource has accepted a write with token.
func (r resource) write(key string, token int64) (bool, error) {
	n, err := writeScript.Run(context.Background(), r.rdb, []string{r.arena}, key, token).Int()
	return n == 1, err
}

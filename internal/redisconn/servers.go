package redisconn

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"

	"github.com/redis/go-redis/v9"
)

// Info asks the server about itself.
func (c *Conn) Info(ctx context.Context, section string) (string, error) {
	info, err := c.Client().Info(ctx, section).Result()
	return info, classify(err)
}

// Publish publishes a message; where pub/sub is sharded, at the server that has the channel. It returns when ctx ends; the message
// may be sent nevertheless. go-redis alone would wait for the answer of a server when ctx was cancelled.
func (c *Conn) Publish(ctx context.Context, channel, message string, sharded bool) error {
	return c.unpipelined.do(ctx, newCommand(func() (any, error) {
		if sharded {
			return nil, classify(c.Client().SPublish(ctx, channel, message).Err())
		}
		return nil, classify(c.Client().Publish(ctx, channel, message).Err())
	}))
}

const page = 1000 // keys

// Scan goes through the keys of all servers that match a glob pattern. It fails with an error
// that matches [errors.ErrUnsupported] on a client of a type of the user's.
func (c *Conn) Scan(ctx context.Context, pattern string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		servers, err := c.masters(ctx)
		if err != nil {
			yield("", err)
			return
		}
		for _, server := range servers {
			scan := server.Scan(ctx, 0, pattern, page).Iterator()
			for scan.Next(ctx) {
				if !yield(scan.Val(), nil) {
					return
				}
			}
			if err := scan.Err(); err != nil {
				yield("", classify(err))
				return
			}
		}
	}
}

// masters returns the servers that have the keys.
func (c *Conn) masters(ctx context.Context) ([]redis.Cmdable, error) {
	var all []redis.Cmdable
	var mu sync.Mutex
	add := func(_ context.Context, server *redis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		all = append(all, server)
		return nil
	}
	switch client := c.Client().(type) {
	case interface { // one server
		redis.Cmdable
		Options() *redis.Options
	}:
		return []redis.Cmdable{client}, nil
	case interface { // a cluster
		ForEachMaster(ctx context.Context, fn func(context.Context, *redis.Client) error) error
	}:
		err := client.ForEachMaster(ctx, add)
		return all, classify(err)
	case interface { // a Ring
		ForEachShard(ctx context.Context, fn func(context.Context, *redis.Client) error) error
	}:
		err := client.ForEachShard(ctx, add)
		return all, classify(err)
	default:
		return nil, unsupported(fmt.Sprintf("keys are looked for on each server, and a client of type %T does not say which it has: use a *redis.Client, *redis.ClusterClient or *redis.Ring", client))
	}
}

// unsupported is an error that matches [errors.ErrUnsupported].
type unsupported string

func (e unsupported) Error() string      { return string(e) }
func (unsupported) Is(target error) bool { return target == errors.ErrUnsupported }

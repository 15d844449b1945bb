package redisconn

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"

	"github.com/redis/go-redis/v9"
)

// inTime returns what f returns, which sends a command of go-redis, or an error when ctx ends. The command may be sent
// nevertheless. go-redis alone would wait for the answer of a server when ctx was cancelled.
func inTime[T any](ctx context.Context, c *Conn, f func() (T, error)) (T, error) {
	cmd := newCommand(func() (any, error) {
		v, err := f()
		return v, classify(err)
	})
	if err := c.unpipelined.do(ctx, cmd); err != nil {
		var none T
		return none, err
	}
	return cmd.reply.(T), nil
}

// Info asks the server about itself.
func (c *Conn) Info(ctx context.Context, section string) (string, error) {
	return inTime(ctx, c, func() (string, error) { return c.Client().Info(ctx, section).Result() })
}

// Setting returns a setting of a server, by its name.
func (c *Conn) Setting(ctx context.Context, server *redis.Client, name string) (map[string]string, error) {
	return inTime(ctx, c, func() (map[string]string, error) { return server.ConfigGet(ctx, name).Result() })
}

// Publish publishes a message; where pub/sub is sharded, at the server that has the channel.
func (c *Conn) Publish(ctx context.Context, channel, message string, sharded bool) error {
	_, err := inTime(ctx, c, func() (int64, error) {
		if sharded {
			return c.Client().SPublish(ctx, channel, message).Result()
		}
		return c.Client().Publish(ctx, channel, message).Result()
	})
	return err
}

const page = 1000 // keys

// Scan goes through the keys of all servers that match a glob pattern. It fails with an error
// that matches [errors.ErrUnsupported] on a client of a type of the user's.
func (c *Conn) Scan(ctx context.Context, pattern string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		servers, err := inTime(ctx, c, func() ([]redis.Cmdable, error) { return c.masters(ctx) })
		if err != nil {
			yield("", err)
			return
		}
		for _, server := range servers {
			for cursor := uint64(0); ; {
				keys, err := inTime(ctx, c, func() (keys []string, err error) {
					keys, cursor, err = server.Scan(ctx, cursor, pattern, page).Result()
					return keys, err
				})
				if err != nil {
					yield("", err)
					return
				}
				for _, key := range keys {
					if !yield(key, nil) {
						return
					}
				}
				if cursor == 0 {
					break
				}
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
		return all, err
	case interface { // a Ring
		ForEachShard(ctx context.Context, fn func(context.Context, *redis.Client) error) error
	}:
		err := client.ForEachShard(ctx, add)
		return all, err
	default:
		return nil, unsupported(fmt.Sprintf("keys are looked for on each server, and a client of type %T does not say which it has: use a *redis.Client, *redis.ClusterClient or *redis.Ring", client))
	}
}

// unsupported is an error that matches [errors.ErrUnsupported].
type unsupported string

func (e unsupported) Error() string      { return string(e) }
func (unsupported) Is(target error) bool { return target == errors.ErrUnsupported }

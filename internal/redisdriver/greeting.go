package redisdriver

import (
	"cmp"
	"context"

	"github.com/redis/go-redis/v9"
)

// greeting is what our connections begin with: what the caller's do, and a name, so that
// CLIENT LIST tells them from the caller's.
type greeting struct {
	name string
	then func(ctx context.Context, cn *redis.Conn) error // the caller's OnConnect, or nil
}

// greetingOf is that of connections like those of a client of some name, or "".
func greetingOf(name string, then func(ctx context.Context, cn *redis.Conn) error) greeting {
	if name != "" {
		name += ":"
	}
	return greeting{name + "locker", then}
}

// by is an OnConnect of connections that speak a version of the protocol. The name goes by HELLO,
// which every user may send: without the permission for CLIENT SETNAME, which go-redis sends
// where the options have a name, there would be no connection.
func (g greeting) by(protocol int) func(ctx context.Context, cn *redis.Conn) error {
	protocol = cmp.Or(protocol, 3) // as go-redis takes it
	return func(ctx context.Context, cn *redis.Conn) error {
		if g.then != nil {
			if err := g.then(ctx, cn); err != nil {
				return err
			}
		}
		if err := cn.Do(ctx, "hello", protocol, "setname", g.name).Err(); err != nil && !isAnswer(err) {
			return err
		}
		return nil // a server that does not know HELLO has connections without names
	}
}

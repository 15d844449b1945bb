package redisconn

import (
	"cmp"
	"context"

	"github.com/redis/go-redis/v9"
)

// greeting begins our connections: with the user's OnConnect, and a name that shows
// them in CLIENT LIST.
type greeting struct {
	name string
	then func(ctx context.Context, conn *redis.Conn) error // the user's OnConnect, or nil
}

// greetingOf returns the greeting for a client like the user's. name is that client's, or "".
func greetingOf(name string, then func(ctx context.Context, conn *redis.Conn) error) greeting {
	if name != "" {
		name += ":"
	}
	return greeting{name + "locker", then}
}

// onConnect returns an OnConnect for connections that speak a version of the protocol. HELLO
// carries the name, as every user may send it. A name in the options would make go-redis
// send CLIENT SETNAME: a user without the permission for it would get no connection.
func (g greeting) onConnect(protocol int) func(ctx context.Context, conn *redis.Conn) error {
	protocol = cmp.Or(protocol, 3) // go-redis's default
	return func(ctx context.Context, conn *redis.Conn) error {
		if g.then != nil {
			if err := g.then(ctx, conn); err != nil {
				return err
			}
		}
		if err := conn.Do(ctx, "hello", protocol, "setname", g.name).Err(); err != nil && !isServerError(err) {
			return err
		}
		return nil // a server that does not know HELLO has connections without names
	}
}

package redisconn

import (
	"cmp"
	"context"
	"errors"
	"strings"

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

var errKeyDB = errors.New("the server is KeyDB 6.3, which a BLPOP can crash (github.com/Snapchat/KeyDB/issues/928)")

// refusingKeyDB returns an OnConnect for connections that block. It refuses KeyDB 6.3, which keeps the address of a
// client that BLPOP has served until the timeout of its BLPOP, and uses the address then, though the connection may
// have ended. KeyDB calls itself Redis, but there is no Redis 6.3.
func refusingKeyDB(then func(ctx context.Context, conn *redis.Conn) error) func(ctx context.Context, conn *redis.Conn) error {
	return func(ctx context.Context, conn *redis.Conn) error {
		if err := then(ctx, conn); err != nil {
			return err
		}
		hello := redis.NewMapStringInterfaceCmd(ctx, "hello")
		if err := conn.Process(ctx, hello); err != nil && !isServerError(err) {
			return err
		}
		if version, _ := hello.Val()["version"].(string); strings.HasPrefix(version, "6.3.") {
			return errKeyDB
		}
		return nil
	}
}

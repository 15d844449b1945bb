package redisconn

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"
)

// greeting begins our connections: with the user's OnConnect, and a name that shows
// them in CLIENT LIST.
type greeting struct {
	name   string
	then   func(ctx context.Context, conn *redis.Conn) error // the user's OnConnect, or nil
	blocks bool                                              // the connection is for commands that block
}

// greetingOf returns the greeting for a client like the user's. name is that client's, or "".
func greetingOf(name string, then func(ctx context.Context, conn *redis.Conn) error) greeting {
	if name != "" {
		name += ":"
	}
	return greeting{name: name + "locker", then: then}
}

// errKeyDB refuses a connection that blocks. KeyDB 6.3 keeps the address of a client whose BLPOP has ended before its
// timeout, and uses the address at the timeout. If the connection has closed by then, the server may crash or hang.
var errKeyDB = errors.New("the server is KeyDB 6.3, which a BLPOP can crash (github.com/Snapchat/KeyDB/issues/928)")

// TakesBLPOP reports whether a server that reports this version may be sent BLPOP: not KeyDB 6.3. KeyDB calls itself Redis,
// but there is no Redis 6.3.
func TakesBLPOP(version string) bool { return !strings.HasPrefix(version, "6.3.") }

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
		hello, err := conn.Do(ctx, "hello", protocol, "setname", g.name).Result()
		switch {
		case err != nil && !isServerError(err):
			return err
		case g.blocks && !TakesBLPOP(versionIn(hello)):
			return errKeyDB
		}
		return nil // a server that does not know HELLO has connections without names
	}
}

// versionIn returns the version in a reply to HELLO, or "".
func versionIn(hello any) (version string) {
	switch hello := hello.(type) {
	case map[any]any:
		version, _ = hello["version"].(string)
	case []any:
		if i := slices.Index(hello, "version"); i >= 0 && i+1 < len(hello) {
			version, _ = hello[i+1].(string)
		}
	}
	return version
}

package redisdriver

import (
	"context"
	"net"
	"reflect"

	"github.com/redis/go-redis/v9"
)

// dialerOf makes connections as c makes its own, by its hooks: a hook may know the way to the
// server where the options do not (a tunnel), or may name another server than Addr. Copies
// of the options alone would take locks where no other user of the client looks for them.
// nil: that cannot be found out. Decision 0019 has the reasons.
func dialerOf(c *redis.Client) func(ctx context.Context, network, addr string) (net.Conn, error) {
	if hookedDial(c) == nil {
		return nil
	}
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		return hookedDial(c)(ctx, network, addr) // hooks may have been added since
	}
}

// hookedDial is what c's pool calls for a new connection. go-redis does not hand it out: it
// is read from the client's fields, which another version may have under other names.
func hookedDial(c *redis.Client) (dial redis.DialHook) {
	defer func() {
		if recover() != nil { // another version's fields
			dial = nil
		}
	}()
	state := readable(reflect.ValueOf(c).Elem().FieldByName("hooksMixin").FieldByName("state"))
	hooks := state.MethodByName("Load").Call(nil)[0].Elem()
	return readable(hooks.FieldByName("current").FieldByName("dial")).Interface().(redis.DialHook)
}

// readable is an unexported field without reflect's guard. It keeps the field's own type, so
// nothing is read as what it is not: a field that is missing, nil or of another type is a panic,
// from which hookedDial recovers.
func readable(field reflect.Value) reflect.Value {
	return reflect.NewAt(field.Type(), field.Addr().UnsafePointer()).Elem()
}

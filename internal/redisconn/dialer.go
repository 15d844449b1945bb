package redisconn

import (
	"context"
	"fmt"
	"net"
	"reflect"
	"time"

	"github.com/redis/go-redis/v9"
)

type dialer = func(ctx context.Context, network, addr string) (net.Conn, error)

// dialerOf returns a dialer that connects as c does, by c's hooks. A hook may know the way to
// the server where the options do not (a tunnel), or may name another server than Addr: a
// client made of the options alone could take locks on another server than the user's other
// clients. It returns nil if the hooks cannot be read. Decision 0019 has the reasons.
func dialerOf(c *redis.Client) dialer {
	if dialHookOf(c) == nil {
		return nil
	}
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		return dialHookOf(c)(ctx, network, addr) // hooks may have been added since
	}
}

// takingDeadlines refuses connections that take no deadlines, as those of an SSH client do not: no command on
// them could end with its caller.
func takingDeadlines(dial dialer) dialer {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		if err := conn.SetDeadline(time.Time{}); err != nil {
			_ = conn.Close()
			return nil, &Error{Err: fmt.Errorf("the client's Dialer makes connections without deadlines, which a Locker needs (for SSH, forward a local port): %w", err), Permanent: true, NotApplied: true}
		}
		return conn, nil
	}
}

// dialHookOf returns the function by which c's pool dials. go-redis does not export it: it is
// read from the client's fields, which another version may name differently.
func dialHookOf(c *redis.Client) (dial redis.DialHook) {
	defer func() {
		if recover() != nil { // another version's fields
			dial = nil
		}
	}()
	state := readable(reflect.ValueOf(c).Elem().FieldByName("hooksMixin").FieldByName("state"))
	hooks := state.MethodByName("Load").Call(nil)[0].Elem()
	return readable(hooks.FieldByName("current").FieldByName("dial")).Interface().(redis.DialHook)
}

// readable returns an unexported field without reflect's guard. The field keeps its own type,
// so that nothing is misread: a field that is missing, nil or of another type panics, from
// which dialHookOf recovers.
func readable(field reflect.Value) reflect.Value {
	return reflect.NewAt(field.Type(), field.Addr().UnsafePointer()).Elem()
}

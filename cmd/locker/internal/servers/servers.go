// Package servers starts servers of installed lock stores, for a comparison or a test.
package servers

import (
	"context"
	"fmt"

	"github.com/distlock/locker/internal/servers"
	"github.com/distlock/locker/strategy"
	_ "github.com/distlock/locker/strategy/etcd/register"     // opens etcd://
	_ "github.com/distlock/locker/strategy/mysql/register"    // opens mysql://
	_ "github.com/distlock/locker/strategy/postgres/register" // opens postgres://
)

// ByStrategy start a server for a strategy that is not for Redis.
var ByStrategy = map[string]func(context.Context) (*Server, error){"postgres": Postgres, "mysql": MySQL, "etcd": Etcd}

// ErrNotInstalled is matched by the errors of stores whose programs are missing.
var ErrNotInstalled = servers.ErrNotInstalled

// LeftOut reports whether the environment leaves tests on a store out.
func LeftOut(store string) bool { return servers.LeftOut(store) }

// Server is a server that this program has started. It ends, and its files go, with this program,
// however that ends.
type Server struct {
	URL string // as package strategy takes it

	*servers.Server
}

// Postgres starts a PostgreSQL, which is reached by a socket.
func Postgres(ctx context.Context) (*Server, error) {
	s, err := servers.Postgres()
	return start(ctx, s, err, func() string { return "postgres://app@/app?sslmode=disable&host=" + s.Dir })
}

// MySQL starts a MariaDB or MySQL, which is reached by a socket.
func MySQL(ctx context.Context) (*Server, error) {
	s, err := servers.MySQL(false)
	return start(ctx, s, err, func() string { return "mysql://app@/app?socket=" + s.Socket() })
}

// Etcd starts a single member of etcd, which is reached by a port. Locks of a cluster of several
// members would cost more.
func Etcd(ctx context.Context) (*Server, error) {
	s, err := servers.Etcd()
	return start(ctx, s, err, func() string { return fmt.Sprintf("etcd://127.0.0.1:%d", s.Ports[0]) })
}

// start starts what was made, if err is nil, and returns once a lock of the server can be taken.
func start(ctx context.Context, s *servers.Server, err error, url func() string) (*Server, error) {
	if err != nil {
		return nil, err
	}
	if err := s.Start(ctx, func(ctx context.Context) error { return ready(ctx, url()) }); err != nil {
		s.Stop()
		return nil, err
	}
	return &Server{url(), s}, nil
}

// Revive starts a server that has crashed, and returns once a lock of it can be taken.
func (s *Server) Revive(ctx context.Context) error {
	return s.Start(ctx, func(ctx context.Context) error { return ready(ctx, s.URL) })
}

// ready takes a lock and gives it back.
func ready(ctx context.Context, url string) error {
	l, release, err := strategy.OpenURL(ctx, url)
	if err != nil {
		return err
	}
	defer release()
	lease, err := l.TryLock(ctx, "ready")
	if err != nil {
		return err
	}
	return lease.Unlock(ctx)
}

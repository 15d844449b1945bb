// Package servers starts servers of installed lock stores, for a comparison or a test.
package servers

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"time"

	"github.com/distlock/locker/strategy"
	_ "github.com/distlock/locker/strategy/etcd/register"     // opens etcd://
	_ "github.com/distlock/locker/strategy/mysql/register"    // opens mysql://
	_ "github.com/distlock/locker/strategy/postgres/register" // opens postgres://
)

// ByStrategy start a server for a strategy that is not for Redis.
var ByStrategy = map[string]func(context.Context) (*Server, error){"postgres": Postgres, "mysql": MySQL, "etcd": Etcd}

// ErrNotInstalled is matched by the errors of stores whose programs are missing.
var ErrNotInstalled = errors.New("not installed")

// Server is a server that this program has started. It ends, and its files go, with this program,
// however that ends.
type Server struct {
	URL   string // as package strategy takes it, with user and password
	About string // the program and its version
	PID   int

	dir      string
	lifeline io.Closer
	ended    chan struct{}
}

// Stop ends the server and removes its files.
func (s *Server) Stop() {
	_ = s.lifeline.Close()
	<-s.ended
}

// patience is for a server that starts on a busy machine.
const patience = time.Minute

// ready returns once a lock of the server can be taken.
func (s *Server) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	l, release, err := strategy.OpenURL(ctx, s.URL)
	if err != nil {
		return err
	}
	defer release()
	for {
		lease, err := l.TryLock(ctx, "ready")
		if err == nil {
			return lease.Unlock(ctx)
		}
		select {
		case <-ctx.Done():
			log, _ := os.ReadFile(s.dir + "/log")
			return fmt.Errorf("%s did not start: %w: %s", s.About, err, log[max(0, len(log)-1000):])
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// withPassword returns a new password, and the URL with user app and that password.
func withPassword(scheme, path string, query url.Values) (password, address string) {
	password = rand.Text()
	u := url.URL{Scheme: scheme, User: url.UserPassword("app", password), Path: "/" + path, RawQuery: query.Encode()}
	return password, scheme + "://" + u.User.String() + "@" + u.Path + "?" + u.RawQuery
}

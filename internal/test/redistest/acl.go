package redistest

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// AddUser adds a user who may do what the rules of ACL SETUSER allow and nothing
// else, for example "+get", "~app:*", "&news". An existing one is replaced.
func (s *Server) AddUser(tb testing.TB, name, password string, rules ...string) {
	tb.Helper()
	c := s.admin()
	defer c.Close()
	rules = append([]string{"reset", "on", ">" + password}, rules...)
	if err := c.ACLSetUser(tb.Context(), name, rules...).Err(); err != nil {
		tb.Fatalf("redistest: user %s: %v", name, err)
	}
}

// admin returns a client that does not give up early on a busy machine, by the
// unix socket: it works whatever becomes of the ports. The caller closes it.
func (s *Server) admin() *redis.Client {
	return redis.NewClient(&redis.Options{
		Network: "unix", Addr: s.Socket(), MaxRetries: -1, DialerRetries: 1, PoolSize: 2,
		ReadTimeout:      settleTimeout + time.Second,
		PipelinePoolSize: -1, DisableIdentity: true,
	})
}

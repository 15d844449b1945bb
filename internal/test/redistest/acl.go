package redistest

import (
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// AddUser adds a user who may do what the rules of ACL SETUSER allow and nothing
// else, for example "+get", "~app:*", "&news". An existing one is replaced. (Before Redis 7.0 a user may use all channels
// by default.)
func (s *Server) AddUser(tb testing.TB, name, password string, rules ...string) {
	tb.Helper()
	c := s.admin()
	defer c.Close()
	rules = append([]string{"reset", "resetchannels", "on", ">" + password}, rules...)
	if err := c.ACLSetUser(tb.Context(), name, rules...).Err(); err != nil {
		tb.Fatalf("redistest: user %s: %v", name, err)
	}
}

// Denied lists what the server has refused to users, but for CLIENT: a client introduces itself, and goes on if it
// may not. (Before Redis 7.0 the server does not name subcommands.)
func (s *Server) Denied(tb testing.TB) (all []string) {
	tb.Helper()
	c := s.admin()
	defer c.Close()
	entries, err := c.ACLLog(tb.Context(), 100).Result()
	if err != nil {
		tb.Fatalf("redistest: ACL LOG: %v", err)
	}
	for _, e := range entries {
		if command, _, _ := strings.Cut(e.Object, "|"); command != "client" {
			all = append(all, e.Reason+" "+e.Object+" ("+e.Context+")")
		}
	}
	return all
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

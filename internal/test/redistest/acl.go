package redistest

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// AddUser adds a user who may do what the rules of ACL SETUSER allow and nothing
// else, for example "+get", "~app:*", "&news". An existing one is replaced. (Before Redis 7.0 a user may use all channels
// by default, and before 6.2 always: rules of channels are left out.)
func (s *Server) AddUser(tb testing.TB, name, password string, rules ...string) {
	tb.Helper()
	c := s.admin()
	defer c.Close()
	rules = append([]string{"reset", "resetchannels", "on", ">" + password}, rules...)
	if !AtLeast(6, 2) {
		rules = slices.DeleteFunc(rules, func(r string) bool { return strings.HasPrefix(r, "&") || r == "resetchannels" || r == "allchannels" })
	}
	if err := c.ACLSetUser(tb.Context(), name, rules...).Err(); err != nil {
		tb.Fatalf("redistest: user %s: %v", name, err)
	}
}

// NeedsChannelRules skips a test of what users may do with channels on a server that has no rules for it.
func NeedsChannelRules(tb testing.TB) {
	tb.Helper()
	if !AtLeast(6, 2) {
		tb.Skip("rules of channels came with Redis 6.2")
	}
}

// Denied lists what the server has refused to users, except CLIENT and HELLO: a client introduces itself, and goes on if it
// may not. (HELLO needs no permission since Redis 6.2. Before Redis 7.0 the server does not name subcommands.)
func (s *Server) Denied(tb testing.TB) (all []string) {
	tb.Helper()
	c := s.admin()
	defer c.Close()
	entries, err := c.ACLLog(tb.Context(), 100).Result()
	if err != nil {
		tb.Fatalf("redistest: ACL LOG: %v", err)
	}
	for _, e := range entries {
		if command, _, _ := strings.Cut(e.Object, "|"); command != "client" && command != "hello" {
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

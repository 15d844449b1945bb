package blocks_test

import (
	"context"
	"os"
	"strings"
	"testing"

	"github.com/distlock/locker"
	"github.com/distlock/locker/internal/test/docblocks"
	"github.com/distlock/locker/internal/test/redistest"
	"github.com/distlock/locker/strategy/hashreentrant"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// underACL runs a block as a user whom the page's own ACL line makes, beside a lock that the
// page's user "locks" holds. The server must refuse neither of them anything.
func underACL(page, user string) func(*testing.T, func(given) error) {
	return func(t *testing.T, run func(given) error) {
		srv := redistest.Start(t)
		users := applyACL(t, srv, page)
		if !users[user] {
			t.Logf("the page has no line for %q: its only user runs the block", user)
			user = "locks"
		}
		open := func(user string) (*redis.Client, *locker.Client) {
			rdb := client(t, &redis.Options{Addr: srv.Addr(), Username: user, Password: "secret"})
			l, err := hashreentrant.New(rdb, locker.WithPrefix("app:"), locker.WithMetadata())
			require.NoError(t, err)
			t.Cleanup(func() { _ = l.Close() })
			return rdb, l
		}
		_, holder := open("locks")
		lease, err := holder.Lock(t.Context(), "deploy")
		require.NoError(t, err)
		require.NoError(t, lease.Renew(t.Context()))

		rdb, l := open(user)
		g := given{ctx: t.Context(), l: l, lease: lease, rdb: rdb, ship: func(context.Context) error { return nil }}
		require.NoError(t, run(g))

		require.NoError(t, lease.Unlock(t.Context()))
		refused, err := srv.Client(t).ACLLog(t.Context(), 100).Result()
		require.NoError(t, err)
		require.Empty(t, refused)
	}
}

// applyACL runs the ACL lines of a page as they are, and returns the users that they make.
func applyACL(t *testing.T, srv *redistest.Server, page string) map[string]bool {
	all, err := docblocks.Read(os.Getenv("DOCS_ROOT"))
	require.NoError(t, err)
	users := make(map[string]bool)
	for _, b := range all {
		for line := range strings.Lines(b.Text) {
			words := strings.Fields(line)
			if b.Page != page || len(words) < 3 || words[0] != "ACL" {
				continue
			}
			var args []any
			for _, w := range words {
				args = append(args, w)
			}
			require.NoError(t, srv.Client(t).Do(t.Context(), args...).Err(), line)
			users[words[2]] = true
		}
	}
	require.NotEmpty(t, users)
	return users
}

package redisconn

import (
	"regexp"
	"slices"
	"testing"

	"github.com/distlock/locker/internal/test/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

var nameInList = regexp.MustCompile(`(?m) name=(\S*) .* user=bob `)

// Our connections have a name of their own, that of the fast path and those of subscriptions too,
// though the user may not set any.
func TestConnectionsHaveNames(t *testing.T) {
	t.Parallel()
	for given, want := range map[string]string{"": "locker", "app": "app:locker"} {
		server := redistest.Start(t)
		admin := server.Client(t)
		require.NoError(t, admin.Do(t.Context(), "acl", "setuser", "bob", "on", ">pw", "~*", "+@all", "&*", "-client", "-hello").Err())
		o := *server.Options()
		o.Username, o.Password, o.ClientName = "bob", "pw", given
		named := redis.NewClient(&o)
		t.Cleanup(func() { _ = named.Close() })
		d := openToy(named)
		t.Cleanup(func() { _ = d.Close() })
		l := &proxied{toy: d, claim: claim{"k", "id"}}
		require.NoError(t, l.acquire(t.Context()))
		l.connected(t)
		node, err := d.Node(t.Context(), "k")
		require.NoError(t, err)
		subscription := node.Subscribe(t.Context(), "c")
		t.Cleanup(func() { _ = subscription.Close() })
		_, err = subscription.Receive(t.Context())
		require.NoError(t, err)
		var names []string
		for _, m := range nameInList.FindAllStringSubmatch(admin.ClientList(t.Context()).Val(), -1) {
			names = append(names, m[1])
		}
		require.GreaterOrEqual(t, len(names), 3, "the pipeline's, the fast path's, the subscription's")
		require.Equal(t, []string{want}, slices.Compact(names))
	}
}

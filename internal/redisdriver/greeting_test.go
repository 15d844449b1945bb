package redisdriver

import (
	"regexp"
	"slices"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

var nameInList = regexp.MustCompile(`(?m) name=(\S*) .* user=bob `)

// Our connections have a name of their own, those of lone commands and of subscriptions too,
// though the user may not set any.
func TestConnectionsHaveNames(t *testing.T) {
	t.Parallel()
	for given, want := range map[string]string{"": "locker", "app": "app:locker"} {
		rdb, admin := bob(t, "&*", "-client", "-hello")
		o := *rdb.Options()
		o.ClientName = given
		named := redis.NewClient(&o)
		t.Cleanup(func() { _ = named.Close() })
		d, err := NewDriver(named, toy)
		require.NoError(t, err)
		t.Cleanup(func() { _ = d.Close() })
		s := d.NewSignals(prefix)
		t.Cleanup(s.Close)
		l := &leaver{Driver: d, claim: claimOf("k")}
		require.NoError(t, l.acquire(t.Context()))
		l.connected(t)
		mustWatch(t, s, "k")
		var names []string
		for _, m := range nameInList.FindAllStringSubmatch(admin.ClientList(t.Context()).Val(), -1) {
			names = append(names, m[1])
		}
		require.GreaterOrEqual(t, len(names), 3, "the lane's, the line, the subscription")
		require.Equal(t, []string{want}, slices.Compact(names))
	}
}

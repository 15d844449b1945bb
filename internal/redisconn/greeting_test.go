package redisconn

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/distlock/locker/internal/test/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

var nameInList = regexp.MustCompile(`(?m) name=(\S*) .* user=bob\b`)

// Our connections have a name of their own, that of the fast path and those of subscriptions too,
// though the user may not set any.
func TestConnectionsHaveNames(t *testing.T) {
	t.Parallel()
	for given, want := range map[string]string{"": "locker", "app": "app:locker"} {
		server := redistest.Start(t)
		admin := server.Client(t)
		server.AddUser(t, "bob", "pw", "~*", "+@all", "&*", "-client")
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

// A batch quotes the server that has refused its connection.
func TestBatchQuotesARefusedConnection(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	server.AddUser(t, "bob", "pw", "~*", "+@all")
	o := *server.Options()
	o.Username, o.Password = "bob", "wrong"
	rdb := redis.NewClient(&o)
	t.Cleanup(func() { _ = rdb.Close() })
	d := openToy(rdb)
	t.Cleanup(func() { _ = d.Close() })
	cmds := []*Command{d.command(renew, claim{"a", "1"}), d.command(renew, claim{"b", "2"})}
	roundTrip(t.Context(), d.commands.single.client, cmds, false)
	for _, c := range cmds {
		require.ErrorContains(t, c.cmd.Err(), "WRONGPASS")
	}
	_, err := d.NewBlocking(time.Second).Pop(t.Context(), "list", true)
	require.ErrorContains(t, err, "WRONGPASS")
}

// A connection that the server has refused at the handshake is not alive, though it answers with the server's error.
func TestRefusedHandshakeIsNoSignOfLife(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	server.AddUser(t, "bob", "pw", "~*", "+@all", "-hello")
	for password, want := range map[string]bool{"pw": true, "wrong": false} {
		o := *server.Options()
		o.Username, o.Password = "bob", password
		rdb := redis.NewClient(&o)
		t.Cleanup(func() { _ = rdb.Close() })
		d := openToy(rdb)
		t.Cleanup(func() { _ = d.Close() })
		c := d.commands.single.fast.connect()
		require.Equal(t, want, c.isAlive(t.Context()), "the first time, password %q", password)
		require.Equal(t, want, c.isAlive(t.Context()), "the second time, password %q", password)
		c.close()
	}
}

// likeKeyDB is a connection to a Redis that calls itself Redis 6.3.4, as KeyDB does.
type likeKeyDB struct {
	net.Conn
	version string // of the Redis
}

func (c likeKeyDB) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	of := func(version string) []byte { return fmt.Appendf(nil, "$%d\r\n%s\r\n", len(version), version) }
	return copy(p, bytes.ReplaceAll(p[:n], of(c.version), of("6.3.4"))), err
}

// KeyDB 6.3 gets no BLPOP, and all other commands.
func TestBlockingRefusesKeyDB(t *testing.T) {
	t.Parallel()
	for name, server := range map[string]*redistest.Server{"single": redistest.Start(t), "cluster": redistest.StartClusterOfOne(t)} {
		admin := server.Client(t)
		hello, err := admin.Do(t.Context(), "hello", 3).Result()
		require.NoError(t, err)
		dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			conn, err := d.DialContext(ctx, "unix", server.Socket())
			return likeKeyDB{conn, versionIn(hello)}, err
		}
		for _, protocol := range []int{2, 3} {
			o := &redis.UniversalOptions{Addrs: []string{server.Addr()}, Protocol: protocol, Dialer: dial, IsClusterMode: name == "cluster"}
			rdb := redis.NewUniversalClient(o)
			t.Cleanup(func() { _ = rdb.Close() })
			d := openToy(rdb)
			t.Cleanup(func() { _ = d.Close() })
			c := claim{fmt.Sprint("k", protocol), "id"}
			require.NoError(t, d.Acquire(t.Context(), c))
			require.NoError(t, d.Release(t.Context(), c))
			b := d.NewBlocking(time.Second)
			t.Cleanup(b.Close)
			for _, many := range []bool{false, true} {
				_, err := b.Pop(t.Context(), "list", many)
				require.ErrorContains(t, err, "KeyDB 6.3", name)
				require.True(t, isPermanent(err), name)
			}
		}
		require.NotContains(t, admin.Info(t.Context(), "commandstats").Val(), "cmdstat_blpop", name)
	}
}

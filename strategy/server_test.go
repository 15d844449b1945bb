package strategy

import (
	"context"
	"net/url"
	"strings"
	"testing"
	"time"

	resp "github.com/alicebob/miniredis/v2/server"
	"github.com/distlock/locker"
	"github.com/distlock/locker/internal/test/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// locks opens cfg under every strategy on one Redis, and has each lock.
func locks(t *testing.T, cfg Config) {
	t.Helper()
	given := cfg
	for _, name := range onRedis() {
		cfg := given
		if cfg.Strategy = name; cfg.URL != "" {
			cfg.Strategy, cfg.URL = "", name+"+"+cfg.URL
		}
		l, release, err := Open(t.Context(), cfg)
		require.NoError(t, err, name)
		require.NoError(t, locker.Do(t.Context(), l, t.Name(), func(ctx context.Context) error { return ctx.Err() }), name)
		release()
	}
}

func onRedis() (names []string) {
	for _, name := range Names() {
		if o, _ := shared.opener(name); o.Redis != nil {
			names = append(names, name)
		}
	}
	return names
}

// refused opens cfg and expects the server to refuse it.
func refused(t *testing.T, cfg Config, why string) {
	t.Helper()
	cfg.Strategy = "setnx"
	l, release, err := Open(t.Context(), cfg)
	require.NoError(t, err, "Open asks no server")
	defer release()
	// The reason that a server gives may be lost with the connection that it resets.
	require.Eventually(t, func() bool {
		_, err = l.TryLock(t.Context(), t.Name())
		return err != nil && strings.Contains(err.Error(), why)
	}, 10*time.Second, 10*time.Millisecond, "the server says %q", why)
	require.ErrorIs(t, err, locker.ErrUnavailable)
	require.NotContains(t, err.Error(), password)
}

func TestSingle(t *testing.T) {
	s := redistest.Shared(t)
	rdb := s.Client(t)
	locks(t, Config{URL: s.URL()})
	locks(t, Config{URL: s.URL() + "?ttl=5s&prefix=app:&client_name=app"})
	locks(t, Config{Addrs: []string{s.Addr()}, DB: 1, Prefix: "app:"})
	locks(t, Config{Client: rdb})
	require.NoError(t, rdb.Ping(t.Context()).Err(), "it stays the caller's")
}

func TestReplicasThatAreNotThere(t *testing.T) {
	s := redistest.Shared(t)
	for _, name := range onRedis() {
		l, release, err := OpenURL(t.Context(), name+"+"+s.URL()+"?replica_acks=1&replica_acks_timeout=10ms")
		require.NoError(t, err)
		_, err = l.TryLock(t.Context(), t.Name())
		release()
		require.ErrorIs(t, err, locker.ErrUnavailable)
		require.ErrorContains(t, err, "0 of the 1 replicas")
	}
}

func TestUnixSocket(t *testing.T) {
	s := redistest.Shared(t)
	locks(t, Config{URL: "unix://" + s.Socket() + "?db=2"})
	locks(t, Config{UnixSocket: s.Socket(), DB: 2})
}

func TestUserAndPassword(t *testing.T) {
	const odd = "p@ss/:?#[]& %41" // escaped in URLs
	s := redistest.Start(t, redistest.WithConfig("--requirepass", odd))
	admin := redis.NewClient(&redis.Options{Addr: s.Addr(), Password: odd})
	defer admin.Close()
	require.NoError(t, admin.ACLSetUser(t.Context(), "app", "on", ">"+password, "~*", "&*", "+@all").Err())

	at := func(user *url.Userinfo) Config { return Config{URL: "redis://" + user.String() + "@" + s.Addr()} }
	locks(t, at(url.UserPassword("", odd)))
	locks(t, at(url.UserPassword("app", password)))
	locks(t, Config{URL: s.URL(), Password: odd})
	locks(t, Config{Addrs: []string{s.Addr()}, Username: "app", Password: password})
	refused(t, Config{Addrs: []string{s.Addr()}}, "NOAUTH")
	refused(t, Config{Addrs: []string{s.Addr()}, Username: "app", Password: "wrong"}, "WRONGPASS")
	refused(t, Config{Addrs: []string{s.Addr()}, Username: "nobody", Password: password}, "WRONGPASS")
}

// A cluster of one node is enough to see that it is taken for one.
func TestCluster(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes a cluster seconds to be one")
	}
	t.Parallel()
	s := redistest.StartClusterOfOne(t)

	locks(t, Config{URL: "redis-cluster://" + s.Addr() + "?addr=127.0.0.1:1"})
	locks(t, Config{Addrs: []string{"127.0.0.1:1", s.Addr()}, Cluster: true})
}

func TestNodesAreRealServers(t *testing.T) {
	var addrs []string
	cfg := Config{Strategy: "redlock"}
	given := Config{Strategy: "redlock"}
	for range 3 {
		s := redistest.Start(t, redistest.WithConfig("--requirepass", password))
		addrs = append(addrs, s.Addr())
		cfg.Nodes = append(cfg.Nodes, Node{Addr: s.Addr(), Password: password})
		given.Clients = append(given.Clients, redis.NewClient(&redis.Options{Addr: s.Addr(), Password: password}))
	}
	cfg.Nodes[1] = Node{URL: "redis://:" + password + "@" + addrs[1] + "/0"}
	byURL := Config{URL: "redlock+redis://:" + password + "@" + addrs[0] + "?node=" + addrs[1] + "&node=" + addrs[2]}
	for _, cfg := range []Config{byURL, cfg, given} {
		l, release, err := Open(t.Context(), cfg)
		require.NoError(t, err)
		require.NoError(t, locker.Do(t.Context(), l, t.Name(), func(ctx context.Context) error { return ctx.Err() }))
		release()
	}
	for _, rdb := range given.Clients {
		require.NoError(t, rdb.Ping(t.Context()).Err(), "it stays the caller's")
		require.NoError(t, rdb.Close())
	}
}

// A Sentinel that knows one master and asks for a password.
func TestSentinel(t *testing.T) {
	master := redistest.Shared(t)
	host, port, _ := strings.Cut(master.Addr(), ":")
	sentinel, err := resp.NewServer("127.0.0.1:0")
	require.NoError(t, err)
	defer sentinel.Close()
	sentinel.SetPreHook(func(p *resp.Peer, cmd string, args ...string) bool {
		ok := p.Ctx != nil && *p.Ctx.(*bool)
		switch cmd = strings.ToUpper(cmd); {
		case cmd == "AUTH":
			ok = strings.Join(args, " ") == "sentinel "+password
			p.Ctx = &ok
			p.WriteOK()
		case cmd == "CLIENT":
			p.WriteOK()
		case cmd == "HELLO":
			p.WriteError("ERR unknown command 'HELLO'")
		case !ok:
			p.WriteError("NOAUTH Authentication required.")
		case cmd == "SENTINEL" && args[0] == "get-master-addr-by-name" && args[1] == "shop":
			p.WriteStrings([]string{host, port})
		case cmd == "SENTINEL" && args[0] == "sentinels":
			p.WriteLen(0)
		case strings.HasSuffix(cmd, "SUBSCRIBE"):
			for i, channel := range args {
				p.WriteLen(3)
				p.WriteBulk(strings.ToLower(cmd))
				p.WriteBulk(channel)
				p.WriteInt(i + 1)
			}
		default:
			p.WriteError("ERR unexpected " + cmd)
		}
		return true
	})
	addr := sentinel.Addr().String()
	locks(t, Config{URL: "redis-sentinel://sentinel:hunter2@" + addr + "/1?master_name=shop"})
	locks(t, Config{Addrs: []string{addr}, MasterName: "shop", SentinelUsername: "sentinel", SentinelPassword: password})
}

func TestOpenBeforeTheServer(t *testing.T) {
	s := redistest.Start(t)
	s.Kill()
	l, release, err := OpenURL(t.Context(), "setnx+"+s.URL())
	require.NoError(t, err, "a program may start before its Redis")
	defer release()
	_, err = l.TryLock(t.Context(), "k")
	require.ErrorIs(t, err, locker.ErrUnavailable)
	s.Restart(t)
	lease, err := l.Lock(t.Context(), "k")
	require.NoError(t, err)
	require.NoError(t, lease.Unlock(t.Context()))
}

package strategy

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"testing"

	"github.com/distlock/locker"
	"github.com/distlock/locker/internal/test/redistest"
	"github.com/distlock/locker/strategy/blpop"
	"github.com/distlock/locker/strategy/hashreentrant"
	"github.com/distlock/locker/strategy/memory"
	"github.com/distlock/locker/strategy/redlock"
	"github.com/distlock/locker/strategy/setnx"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// invalid opens cfg, which must be refused by a message with all of says.
func invalid(t *testing.T, cfg Config, says ...string) {
	t.Helper()
	_, release, err := Open(t.Context(), cfg)
	if err == nil {
		release()
	}
	require.ErrorIs(t, err, locker.ErrInvalid)
	for _, s := range says {
		require.ErrorContains(t, err, s)
	}
}

func TestDatabaseGivenTwiceInURLIsRefused(t *testing.T) {
	for _, u := range []string{
		"setnx+redis://h/1?db=2", "setnx+redis://h/1?db=1", "setnx+redis-sentinel://h/1?db=2&master_name=m",
		"redlock+redis://h/1?db=2&node=h2&node=h3",
	} {
		invalid(t, Config{URL: u}, "database", "twice")
	}
}

func TestParameterGivenTwiceIsRefused(t *testing.T) {
	for _, u := range []string{
		"setnx+redis://h?pool_fifo=1&pool_fifo=0", "setnx+redis://h?db=1&db=2", "setnx+redis://h?ttl=5s&ttl=5s",
		"setnx+rediss://h?skip_verify=true&skip_verify=false", "setnx+redis-sentinel://h?master_name=a&master_name=b",
		"setnx+redis-cluster://h?dial_timeout=1s&%64ial_timeout=2s", "memory://?prefix=a&prefix=b",
	} {
		invalid(t, Config{URL: u}, "given once")
	}
	invalid(t, Config{URL: "setnx+redis-sentinel://h?master_name=m&password=" + password + "1&password=" + password}, "password", "given once")
}

// So is one that only the Opener of another store knows.
func TestParameterOfAnotherStoreGivenTwiceIsRefused(t *testing.T) {
	r := new(Registry)
	require.NoError(t, r.Register("store", Opener{Other: func(_ context.Context, _ *url.URL, opts ...locker.Option) (*locker.Client, func(), error) {
		l, err := memory.New(opts...)
		return l, nil, err
	}}))
	_, release, err := r.OpenURL(t.Context(), "store://h?table=a&addr=h2&addr=h3&node=h4&node=h5")
	require.NoError(t, err)
	release()
	_, _, err = r.OpenURL(t.Context(), "store://u:"+password+"@h?table=a&table=b")
	require.ErrorIs(t, err, locker.ErrInvalid)
	require.ErrorContains(t, err, "a parameter twice")
	require.NotContains(t, err.Error(), password)
}

func TestSameServerUnderTwoNamesIsNoQuorum(t *testing.T) {
	for _, u := range []string{
		"redlock+redis://localhost?node=127.0.0.1&node=h3",
		"redlock+redis://localhost:7000?node=h2&node=[::1]:7000",
		"redlock+redis://127.0.0.1?node=h2&node=[::1]:6379",
		"redlock+redis://127.0.0.1?node=h2&node=[::ffff:127.0.0.1]",
		"redlock+redis://0.0.0.0?node=h2&node=LocalHost",
		"redlock+redis://redis-1?node=h2&node=REDIS-1:6379",
		"redlock+redis://redis-1?node=h2&node=redis-1.",
		"redlock+redis://[2001:db8::1]?node=h2&node=[2001:DB8:0::1]",
		"redlock+unix:///run/r.sock?node=/run/2&node=/run/../run/r.sock",
	} {
		invalid(t, Config{URL: u}, "a server of its own for each node")
	}
	invalid(t, Config{Strategy: "redlock", Nodes: []Node{{Addr: "localhost"}, {Addr: "h2"}, {URL: "redis://127.0.0.1/2"}}},
		"nodes[2]", "a server of its own for each node")
}

// The names above are the same without asking; others are resolved.
func TestNodeNamesThatResolveToOneAddressAreNoQuorum(t *testing.T) {
	lookup := func(_ context.Context, host string) ([]string, error) {
		addrs, ok := map[string][]string{"a": {"10.0.0.1", "10.0.0.2"}, "b": {"10.0.0.2"}, "c": {"10.0.0.3"}, "me": {"::1"}}[host]
		if !ok {
			return nil, errors.New("no such host")
		}
		return addrs, nil
	}
	nodes := func(addrs ...string) (s []server) {
		for _, addr := range addrs {
			s = append(s, server{single: &redis.Options{Addr: addr}, place: "node"})
		}
		return s
	}
	for _, same := range [][]server{nodes("a:1", "c:1", "b:1"), nodes("A.:1", "c:1", "10.0.0.1:1"), nodes("127.0.0.1:1", "c:1", "me:1")} {
		err := checkDistinct(t.Context(), same, lookup)
		require.ErrorIs(t, err, locker.ErrInvalid)
		require.ErrorContains(t, err, "perhaps by another name")
		require.ErrorContains(t, err, same[2].single.Addr)
	}
	for _, others := range [][]server{nodes("a:1", "c:1", "b:2"), nodes("a:1", "c:1", "unknown:1"), nodes("127.0.0.1:1", "127.0.0.2:1", "127.0.0.3:1")} {
		require.NoError(t, checkDistinct(t.Context(), others, lookup))
	}
}

func TestKeysOfOurOwnAreRefused(t *testing.T) {
	s := redistest.Shared(t)
	for _, prefix := range []string{"locker:", "locker:fence:", "locker:fence:{app}"} {
		for _, name := range onRedis() {
			invalid(t, Config{URL: name + "+" + s.URL(), Prefix: prefix}, "prefix", "locker:")
		}
		invalid(t, Config{URL: "redlock+redis://127.0.0.1?node=127.0.0.2&node=127.0.0.3&prefix=" + prefix}, "prefix", "locker:")
	}
	locks(t, Config{URL: s.URL(), Prefix: "locker"})

	rdb := s.Client(t)
	nodes := []redis.UniversalClient{rdb, redis.NewClient(&redis.Options{Addr: "127.0.0.2:1"}), redis.NewClient(&redis.Options{Addr: "127.0.0.3:1"})}
	defer func() { _, _ = nodes[1].Close(), nodes[2].Close() }()
	for name, constructor := range map[string]func(...locker.Option) (*locker.Client, error){
		"setnx":         func(o ...locker.Option) (*locker.Client, error) { return setnx.New(rdb, o...) },
		"hashreentrant": func(o ...locker.Option) (*locker.Client, error) { return hashreentrant.New(rdb, o...) },
		"blpop":         func(o ...locker.Option) (*locker.Client, error) { return blpop.New(rdb, o...) },
		"redlock":       func(o ...locker.Option) (*locker.Client, error) { return redlock.New(nodes, o...) },
	} {
		_, err := constructor(locker.WithPrefix("locker:"))
		require.ErrorIs(t, err, locker.ErrInvalid, name)
		require.ErrorContains(t, err, `WithPrefix("locker:")`, name)
		for prefix, key := range map[string]string{"": "locker:fence:{k}", "lock": "er:k"} {
			l, err := constructor(locker.WithPrefix(prefix))
			require.NoError(t, err, name)
			_, err = l.TryLock(t.Context(), key)
			require.ErrorIs(t, err, locker.ErrInvalid, name)
			require.ErrorContains(t, err, fmt.Sprintf("%q", prefix+key), name)
			require.NoError(t, l.Close(), name)
		}
	}
}

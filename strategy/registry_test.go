package strategy

import (
	"context"
	"net/url"
	"testing"

	"github.com/distlock/locker"
	"github.com/distlock/locker/strategy/memory"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

func openerOf(urls *[]string, released *int) Opener {
	return Opener{Other: func(_ context.Context, u *url.URL, opts ...locker.Option) (*locker.Client, func(), error) {
		*urls = append(*urls, u.String())
		l, err := memory.New(opts...)
		return l, func() { *released++ }, err
	}}
}

func TestRegisteredStrategy(t *testing.T) {
	var r Registry
	require.Empty(t, r.Names())
	var urls []string
	var released int
	require.NoError(t, r.Register("consul", openerOf(&urls, &released)))
	require.NoError(t, r.Register("a.b-c", openerOf(&urls, &released)))
	require.Equal(t, []string{"a.b-c", "consul"}, r.Names())
	require.Empty(t, r.openers["setnx"])

	for _, cfg := range []Config{
		{URL: "consul://user:pass@h:1/path?dc=1&ttl=5s&token=x"},
		{URL: "consul+https://h?ttl=5s"},
		{Strategy: "consul", URL: "https://h"},
		{Strategy: "consul"},
	} {
		l, release, err := r.Open(t.Context(), cfg)
		require.NoError(t, err)
		_, err = l.TryLock(t.Context(), "k")
		require.NoError(t, err)
		release()
		_, err = l.TryLock(t.Context(), "k")
		require.ErrorIs(t, err, locker.ErrClosed)
	}
	require.Equal(t, []string{"consul://user:pass@h:1/path?dc=1&token=x", "https://h", "https://h", "consul:"}, urls)
	require.Equal(t, 4, released)
}

func TestRegisterRefuses(t *testing.T) {
	one := Opener{Redis: func(redis.UniversalClient, ...locker.Option) (*locker.Client, error) { return nil, nil }}
	two := openerOf(nil, nil)
	two.Redis = one.Redis
	r := NewRegistry()
	for name, allowed := range map[string]string{
		"setnx": "registered before", "redis": "a name other than the schemes", "unix": "schemes",
		"": "a letter first", "1st": "a letter first", "Big": "lower-case", "a+b": "lower-case letters", "a_b": "lower-case", "a b": "lower-case",
	} {
		err := r.Register(name, one)
		require.ErrorIs(t, err, locker.ErrInvalid, name)
		require.ErrorContains(t, err, allowed, name)
	}
	require.ErrorContains(t, r.Register("ok", two), "exactly one of Redis, Nodes and Other; this one has 2")
	require.ErrorContains(t, r.Register("ok", Opener{}), "this one has 0")
	require.NoError(t, r.Register("ok", one))
	require.ErrorIs(t, r.Register("ok", one), locker.ErrInvalid)
	require.Equal(t, Names(), NewRegistry().Names(), "registries are apart")
}

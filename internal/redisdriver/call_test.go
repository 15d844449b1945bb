package redisdriver

import (
	"testing"
	"time"

	"github.com/distlock/locker/driver"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// A command leaves out arguments at its end that are as usual.
func TestUsualArgumentsAreLeftOut(t *testing.T) {
	t.Parallel()
	rdb := redis.NewClient(&redis.Options{})
	defer rdb.Close()
	acquire := newScript("acquire", "local lock, fence = unpack(KEYS)\nlocal claim, ttl, tokens, owner = unpack(ARGV)\n")
	release := newScript("release", "local lock = unpack(KEYS)\nlocal claim, owner, channel, publish, more = unpack(ARGV)\n")
	d, err := NewDriver(rdb, Protocol{Name: "test", Acquire: acquire, Release: release})
	require.NoError(t, err)
	defer d.Close()
	d.NewSignals("channel:")
	claim := driver.Claim{Key: "k", ID: "1", Owner: "1", TTL: time.Second}
	named, tagged := claim, claim
	named.Owner, tagged.Key = "o", "{k}"
	for _, c := range []struct {
		script *Script
		req    driver.Request
		args   []any
		want   input
	}{
		{acquire, driver.Request{Claim: claim, Fencing: true}, nil, input{2, "k", "locker:fence:{k}", "1", int64(1000)}},
		{acquire, driver.Request{Claim: claim, Tokens: 1}, nil, input{1, "k", "1", int64(1000)}},
		{acquire, driver.Request{Claim: claim, Tokens: 2}, nil, input{1, "k", "1", int64(1000), 2}},
		{acquire, driver.Request{Claim: named}, nil, input{1, "k", "1", int64(1000), 1, "o"}},
		{acquire, driver.Request{Claim: claim}, []any{"a"}, input{1, "k", "1", int64(1000), 1, "", "a"}},
		{release, driver.Request{Claim: claim}, nil, input{1, "k", "1"}},
		{release, driver.Request{Claim: named}, nil, input{1, "k", "1", "o"}},
		{release, driver.Request{Claim: tagged}, nil, input{1, "{k}", "1", "", "channel:{k}", "PUBLISH"}},
		{release, driver.Request{Claim: claim}, []any{"a"}, input{1, "k", "1", "", "channel:{k}", "PUBLISH", "a"}},
	} {
		require.Equal(t, c.want, d.flight(c.script, c.req, c.args...).in.plain()[2:])
	}
}

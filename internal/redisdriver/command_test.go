package redisdriver

import (
	"testing"
	"time"

	"github.com/distlock/locker/driver"
	"github.com/distlock/locker/internal/redisconn"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// A command leaves out arguments at its end that have their defaults.
func TestDefaultArgumentsAreLeftOut(t *testing.T) {
	t.Parallel()
	rdb := redis.NewClient(&redis.Options{})
	defer rdb.Close()
	acquire := redisconn.NewScript("acquire", "local lock, fence = unpack(KEYS)\nlocal claim, ttl, tokens, owner = unpack(ARGV)\n")
	release := redisconn.NewScript("release", "local lock = unpack(KEYS)\nlocal claim, owner, channel, publish, more = unpack(ARGV)\n")
	d, err := NewDriver(rdb, Protocol{Name: "test", Acquire: acquire, Release: release})
	require.NoError(t, err)
	defer d.Close()
	d.NewChannels("channel:")
	claim := driver.Claim{Key: "k", ID: "1", Owner: "1", TTL: time.Second}
	named, tagged := claim, claim
	named.Owner, tagged.Key = "o", "{k}"
	for _, c := range []struct {
		script *redisconn.Script
		req    driver.Request
		args   []any
		want   []any
	}{
		{acquire, driver.Request{Claim: claim, Fencing: true}, nil, []any{2, "k", "locker:fence:{k}", "1", int64(1000)}},
		{acquire, driver.Request{Claim: claim, Tokens: 1}, nil, []any{1, "k", "1", int64(1000)}},
		{acquire, driver.Request{Claim: claim, Tokens: 2}, nil, []any{1, "k", "1", int64(1000), 2}},
		{acquire, driver.Request{Claim: named}, nil, []any{1, "k", "1", int64(1000), 1, "o"}},
		{acquire, driver.Request{Claim: claim}, []any{"a"}, []any{1, "k", "1", int64(1000), 1, "", "a"}},
		{release, driver.Request{Claim: claim}, nil, []any{1, "k", "1"}},
		{release, driver.Request{Claim: named}, nil, []any{1, "k", "1", "o"}},
		{release, driver.Request{Claim: tagged}, nil, []any{1, "{k}", "1", "", "channel:{k}", "PUBLISH"}},
		{release, driver.Request{Claim: claim}, []any{"a"}, []any{1, "k", "1", "", "channel:{k}", "PUBLISH", "a"}},
	} {
		require.Equal(t, c.want, values(d.command(c.script, c.req, c.args...).Words)[2:])
	}
}

// values returns words with values in the place of pointers.
func values(words []any) []any {
	all := make([]any, len(words))
	for i, w := range words {
		switch w := w.(type) {
		case *string:
			all[i] = *w
		case *int64:
			all[i] = *w
		default:
			all[i] = w
		}
	}
	return all
}

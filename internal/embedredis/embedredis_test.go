package embedredis

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

func start(t *testing.T) *redis.Client {
	t.Helper()
	s, err := Start()
	require.NoError(t, err)
	t.Cleanup(s.Close)
	opt, err := redis.ParseURL(s.URL())
	require.NoError(t, err)
	rdb := redis.NewClient(opt)
	t.Cleanup(func() { rdb.Close() })
	return rdb
}

// A lock may rely on the whole of its TTL: no key that a script sets ends before.
func TestTTLsTick(t *testing.T) {
	rdb := start(t)
	ctx := t.Context()
	const ttl = 20 * time.Millisecond
	for range 20 { // the clock's last tick is up to a millisecond ago, each time another part of it
		began := time.Now()
		set := `return redis.call('SET', KEYS[1], 'v', 'PX', ARGV[1])`
		require.NoError(t, rdb.Eval(ctx, set, []string{"k"}, ttl.Milliseconds()).Err())
		for rdb.Exists(ctx, "k").Val() != 0 {
			require.Less(t, time.Since(began), 5*time.Second)
		}
		require.GreaterOrEqual(t, time.Since(began), ttl)
	}
}

// As in Redis, a script sees one state of the store: a key whose time is over in the middle of a
// script ends after the script.
func TestNoKeyEndsInTheMiddleOfAScript(t *testing.T) {
	rdb := start(t)
	ctx := t.Context()
	ended, err := rdb.Eval(ctx, `
		redis.call('SET', KEYS[1], 'v', 'PX', 2)
		for looks = 1, 20000 do
			if redis.call('EXISTS', KEYS[1]) == 0 then
				return looks
			end
		end
		return 0`, []string{"k"}).Int()
	require.NoError(t, err)
	require.Zero(t, ended, "at this look of the script the key was gone")
	require.Eventually(t, func() bool {
		return rdb.Exists(ctx, "k").Val() == 0
	}, 5*time.Second, time.Millisecond)
}

// The server knows the commands that the strategies' scripts are made of.
func TestScriptsAndMessages(t *testing.T) {
	rdb := start(t)
	ctx := t.Context()
	sub := rdb.Subscribe(ctx, "released")
	t.Cleanup(func() { sub.Close() })
	_, err := sub.Receive(ctx) // the confirmation
	require.NoError(t, err)

	script := redis.NewScript(`
		local now = redis.call('TIME')
		local base = now[1] * 1000000 + now[2]
		if redis.call('EXISTS', KEYS[1]) == 0 then
			redis.call('SET', KEYS[1], base, 'PX', ARGV[1])
		end
		local token = redis.call('INCR', KEYS[1])
		redis.call('HSET', KEYS[2], ARGV[2], 1)
		redis.call('PEXPIRE', KEYS[2], ARGV[1])
		redis.call('PUBLISH', ARGV[3], '0')
		return {token, redis.call('PTTL', KEYS[2]), redis.call('HGET', KEYS[2], 'nobody')}`)
	for range 2 { // loaded by EVAL, then found by EVALSHA
		before := time.Now().UnixMicro()
		got, err := script.Run(ctx, rdb, []string{"fence", "lock"}, 60_000, "claim", "released").Slice()
		require.NoError(t, err)
		require.Len(t, got, 3)
		require.InDelta(t, before, got[0], 5e6)
		require.InDelta(t, 60_000, got[1], 5_000)
		require.Nil(t, got[2])
		m, err := sub.ReceiveMessage(ctx)
		require.NoError(t, err)
		require.Equal(t, "0", m.Payload)
	}
}

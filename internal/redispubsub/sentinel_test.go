package redispubsub

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/distlock/locker/internal/redisconn"
	"github.com/distlock/locker/internal/test/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// Once the Sentinels name another master all connections go there, those of
// subscriptions too, though the old one still answers as a master. Until then they stay:
// they used to be made anew each half a second.
func TestConnectionsFollowTheMaster(t *testing.T) {
	servers := []*redistest.Server{redistest.Start(t), redistest.Start(t)}
	var master, dials atomic.Int32
	rdb := redis.NewClient(&redis.Options{
		Addr: "FailoverClient", // the address of go-redis's clients that ask Sentinels
		Dialer: func(ctx context.Context, network, _ string) (net.Conn, error) {
			dials.Add(1)
			var d net.Dialer
			return d.DialContext(ctx, "tcp", servers[master.Load()].Addr())
		},
	})
	t.Cleanup(func() { _ = rdb.Close() })
	conn := redisconn.Open(rdb)
	t.Cleanup(func() { _ = conn.Close() })
	s := New(conn, "p:")
	t.Cleanup(s.Close)
	mustWatch(t, s, "k")
	write := redisconn.NewScript("write", "return redis.call('SET', KEYS[1], '1')")
	set := func() {
		var cmd redisconn.Command
		cmd.Prepare(write, "k")
		cmd.Words = append(cmd.Words, "k")
		cmd.SetKeys()
		_, _ = conn.Do(t.Context(), &cmd)
	}
	watched := func(server int) bool {
		n, err := servers[server].Client(t).PubSubNumSub(t.Context(), "p:{k}").Result()
		return err == nil && n["p:{k}"] == 1
	}
	require.True(t, watched(0))

	const askEvery = 500 * time.Millisecond // the least time between two questions for the master
	began := time.Now()
	for time.Since(began) < 3*askEvery {
		set()
	}
	const ways = 3 // the caller's own command, the pipeline, the subscription
	asks := int32(time.Since(began)/askEvery) + 1
	require.LessOrEqual(t, dials.Load(), ways+asks, "connections that were made in %v", time.Since(began))

	other := servers[1].Client(t)
	require.Zero(t, other.Exists(t.Context(), "k").Val())
	master.Store(1)
	require.Eventually(t, func() bool {
		set()
		return other.Exists(t.Context(), "k").Val() == 1 && watched(1)
	}, soon, time.Millisecond, "the new master is used")
	require.False(t, watched(0))
	require.NoError(t, servers[0].Client(t).Del(t.Context(), "k").Err())
	for range 20 {
		set()
	}
	require.Zero(t, servers[0].Client(t).Exists(t.Context(), "k").Val(), "the old master is not used any more")
}

package redisdriver

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/distlock/locker/driver"
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
		Addr: failoverAddr,
		Dialer: func(ctx context.Context, network, _ string) (net.Conn, error) {
			dials.Add(1)
			var d net.Dialer
			return d.DialContext(ctx, "tcp", servers[master.Load()].Addr())
		},
	})
	t.Cleanup(func() { _ = rdb.Close() })
	d, err := NewDriver(rdb, toy)
	require.NoError(t, err)
	t.Cleanup(func() { _ = d.Close() })
	s := d.NewSignals("p:")
	t.Cleanup(s.Close)
	_, err = s.Watch(t.Context(), "k")
	require.NoError(t, err)
	acquire := func() {
		_, _ = d.Acquire(t.Context(), driver.Request{Claim: driver.Claim{Key: "k", ID: "id", TTL: time.Minute}})
	}
	watched := func(server int) bool {
		n, err := servers[server].Client(t).PubSubNumSub(t.Context(), "p:{k}").Result()
		return err == nil && n["p:{k}"] == 1
	}
	require.True(t, watched(0))

	began := time.Now()
	for time.Since(began) < 3*askAgain {
		acquire()
	}
	const ways = 3 // the caller's own command, the lane, the subscription
	asks := int32(time.Since(began)/askAgain) + 1
	require.LessOrEqual(t, dials.Load(), ways+asks, "connections that were made in %v", time.Since(began))

	other := servers[1].Client(t)
	require.Zero(t, other.Exists(t.Context(), "k").Val())
	master.Store(1)
	require.Eventually(t, func() bool {
		acquire()
		return other.Exists(t.Context(), "k").Val() == 1 && watched(1)
	}, soon, time.Millisecond, "the new master is used")
	require.False(t, watched(0))
	require.NoError(t, servers[0].Client(t).Del(t.Context(), "k").Err())
	for range 20 {
		acquire()
	}
	require.Zero(t, servers[0].Client(t).Exists(t.Context(), "k").Val(), "the old master is not used any more")
}

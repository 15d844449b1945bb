package blpop

import (
	"context"
	"testing"
	"time"

	"github.com/distlock/locker/conformance/faultproxy"
	"github.com/distlock/locker/driver"
	"github.com/distlock/locker/internal/redisdriver"
	"github.com/distlock/locker/internal/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// An attempt that is applied after its waiter has left leaves no place in the queue.
func TestLateAttemptLeavesNoPlace(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	direct, proxy := server.Client(t), faultproxy.Start(t, server.Addr())
	held(t, direct)
	rdb := redis.NewClient(&redis.Options{Addr: proxy.Addr()})
	t.Cleanup(func() { _ = rdb.Close() })
	d, err := newDriver(rdb)
	require.NoError(t, err)
	t.Cleanup(func() { _ = d.Close() })
	configure(t, d, "late")
	req := driver.Request{Claim: driver.Claim{Key: "k", ID: "c", Owner: "c", TTL: time.Minute}, Wait: true}
	_, err = d.Acquire(t.Context(), req) // the script is known
	require.NoError(t, err)
	queue := redisdriver.AuxKey("locker:queue:", "k")
	queued := func(n int64) func() bool {
		return func() bool { return direct.ZCard(t.Context(), queue).Val() == n }
	}
	require.Eventually(t, queued(0), time.Second, time.Millisecond, "it has no watch")

	ctx, cancel := context.WithCancel(t.Context())
	rule := proxy.Delay(faultproxy.MatchCommand("EVALSHA"), 1, 500*time.Millisecond)
	time.AfterFunc(100*time.Millisecond, cancel)
	began := time.Now()
	_, err = d.Acquire(ctx, req)
	require.ErrorIs(t, err, context.Canceled)
	require.Less(t, time.Since(began), 400*time.Millisecond, "the answer would come after 500ms")
	<-rule.Done()
	time.Sleep(time.Until(began.Add(800 * time.Millisecond)))
	require.True(t, queued(0)(), "the attempt was applied, and its place given up")
}

package blpop

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/distlock/locker/conformance"
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
	conformance.Eventually(t, 5*time.Second, "its place is given up: it has no watch", queued(0))

	// How many places were taken so far.
	taken := func() int {
		info := direct.InfoMap(t.Context(), "commandstats").Val()
		calls, _, _ := strings.Cut(strings.TrimPrefix(info["Commandstats"]["cmdstat_zadd"], "calls="), ",")
		n, err := strconv.Atoi(calls)
		require.NoError(t, err)
		return n
	}
	before := taken()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	delayed := proxy.Delay(faultproxy.MatchCommand("EVALSHA"), 1, time.Hour)
	go func() {
		<-delayed.Done()
		cancel()
	}()
	_, err = d.Acquire(ctx, req)
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, before, taken(), "the attempt is on its way")
	delayed.Stop()
	conformance.Eventually(t, 5*time.Second, "the attempt is applied", func() bool { return taken() > before })
	conformance.Eventually(t, 5*time.Second, "its place is given up", queued(0))
}

package redisconn

import (
	"context"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/distlock/locker/conformance/faultproxy"
	"github.com/distlock/locker/internal/test/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// A command that a node redirects (ASK) has the time of the first round trip: a later command of its claim is ordered
// after it by that time.
func TestRedirectedCommandsAreNotSentLate(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 2, 0)
	key := "{0}"
	for i := 0; cluster.ShardOf(t, key) != 0; i++ {
		key = "{" + strings.Repeat("i", i) + "}"
	}
	target := cluster.Master(t, 1)
	var slow, dials atomic.Int64
	var mu sync.Mutex
	var open []net.Conn // to the target
	rdb := redis.NewClusterClient(&redis.ClusterOptions{
		Addrs: cluster.Addrs(),
		Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
			if addr != target.Addr() {
				return (&net.Dialer{}).DialContext(ctx, network, addr)
			}
			dials.Add(1)
			time.Sleep(time.Duration(slow.Load())) // a slow link
			conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
			if err == nil {
				mu.Lock()
				defer mu.Unlock()
				open = append(open, conn)
			}
			return conn, err
		},
	})
	defer rdb.Close()
	d := openToy(rdb)
	defer d.Close()
	r := d.NewReplicas(1, time.Millisecond, func(any) bool { return true })
	defer r.Close()
	cluster.StartMove(t, Slot(key), 1)
	node, err := nodeOf(t.Context(), r.client, key)
	require.NoError(t, err)
	require.NoError(t, node.Ping(t.Context()).Err(), "a connection is open")

	attempt := func(within time.Duration) (redirects int) {
		cmd := d.command(acquire, claim{Key: key, ID: "id"})
		sent, cancel := context.WithTimeout(t.Context(), within)
		defer cancel()
		before := dials.Load()
		r.send(t.Context(), sent, node, false, []*Command{{Script: cmd.Script, Words: plain(cmd.Words)}}, new(sync.WaitGroup))
		return int(dials.Load() - before)
	}
	held := func() bool {
		pipe := target.Client(t).Pipeline()
		pipe.Do(t.Context(), "asking")
		n := pipe.Exists(t.Context(), key)
		_, err := pipe.Exec(t.Context())
		require.NoError(t, err)
		return n.Val() == 1
	}
	slow.Store(int64(600 * time.Millisecond))
	mu.Lock()
	for _, conn := range open {
		_ = conn.Close()
	}
	mu.Unlock()
	require.NotZero(t, attempt(300*time.Millisecond), "the command is redirected")
	require.False(t, held(), "it is not sent")
	slow.Store(0)
	attempt(soon)
	require.True(t, held(), "it is sent in time")
}

// A WAIT never ends before its caller's deadline, as a caller without time left is to learn that, and at most a
// millisecond after it.
func TestWaitsEndAfterTheDeadline(t *testing.T) {
	t.Parallel()
	proxy := faultproxy.Start(t, redistest.Start(t).Addr())
	rdb := redis.NewClient(&redis.Options{Addr: proxy.Addr()})
	defer rdb.Close()
	d := openToy(rdb)
	defer d.Close()
	r := d.NewReplicas(1, time.Second, func(any) bool { return true })
	defer r.Close()
	node, err := nodeOf(t.Context(), r.client, "k")
	require.NoError(t, err)
	var deadline atomic.Pointer[time.Time]
	isWait := faultproxy.MatchCommand("WAIT")
	proxy.Watch(func(cmd []string) {
		if !isWait(cmd) {
			return
		}
		ms, err := strconv.Atoi(cmd[2])
		if rest := time.Until(*deadline.Load()); err != nil || time.Duration(ms)*time.Millisecond < max(rest, 1) || ms > 22 {
			t.Errorf("WAIT for %s ms, with %v left", cmd[2], rest)
		}
	})
	for i := range 20 { // deadlines in all parts of a millisecond
		end := time.Now().Add(20*time.Millisecond + time.Duration(i)*50*time.Microsecond)
		deadline.Store(&end)
		ctx, cancel := context.WithDeadline(t.Context(), end)
		conn := node.Conn()
		require.ErrorContains(t, r.wait(ctx, conn), "0 of the 1 replicas")
		_ = conn.Close()
		cancel()
	}
	require.Equal(t, 20, proxy.Count(isWait))
}

package redisconformance

import (
	"net"
	"strings"
	"testing"
	"time"

	"github.com/distlock/locker/internal/test/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

func single(t *testing.T) *harness {
	t.Helper()
	return Strategy{Name: "none"}.Harness(t).(*harness)
}

// Not only subscriptions: blpop is woken by an element of a list.
func TestCutNotificationsEndsBLPOP(t *testing.T) {
	t.Parallel()
	h := single(t)
	o := h.nodes[0].Options()
	o.MaxRetries = -1
	rdb := redis.NewClient(o)
	defer rdb.Close()
	popped := make(chan error, 1)
	go func() { popped <- rdb.BLPop(t.Context(), 0, "list").Err() }()
	require.Eventually(t, func() bool {
		list, err := h.direct.ClientList(t.Context()).Result()
		return err == nil && strings.Contains(list, "cmd=blpop")
	}, 10*time.Second, time.Millisecond)
	require.NoError(t, h.CutNotifications())
	select {
	case err := <-popped:
		require.Error(t, err)
	case <-time.After(10 * time.Second):
		t.Fatal("a BLPOP goes on")
	}
}

// A Locker that tries to reach a server that was killed does not lock on the one of
// another test.
func TestKilledServersPortGoesToAnother(t *testing.T) {
	t.Parallel()
	h := single(t)
	rdb := h.client(t)
	require.NoError(t, rdb.Ping(t.Context()).Err())
	h.nodes[0].Kill()
	_, port, err := net.SplitHostPort(h.nodes[0].Addr())
	require.NoError(t, err)
	redistest.Start(t, redistest.WithConfig("--port", port))
	require.Error(t, rdb.Ping(t.Context()).Err())
}

// Each trouble ends when it is told to, and leaves the server as it was.
func TestTroublesEnd(t *testing.T) {
	t.Parallel()
	h := single(t)
	o := h.nodes[0].Options()
	o.MaxRetries, o.ReadTimeout = -1, 200*time.Millisecond
	hasty := redis.NewClient(o)
	defer hasty.Close()
	script := redis.NewScript("return redis.call('INCR', KEYS[1])")
	for _, tr := range troubles {
		require.NoError(t, h.Cause(tr.Name), tr.Name)
		require.ErrorContains(t, script.Eval(t.Context(), hasty, []string{"k"}).Err(), tr.Words, tr.Name)
		require.NoError(t, h.Recover(), tr.Name)
		require.NoError(t, script.Eval(t.Context(), h.direct, []string{"k"}).Err(), tr.Name)
	}
	require.ErrorContains(t, h.Cause("no such"), "no such")
}

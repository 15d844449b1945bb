package strategy

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/distlock/locker"
	"github.com/distlock/locker/internal/test/redistest"
	"github.com/stretchr/testify/require"
)

// A parameter of go-redis either does something for locks or is refused: see redisdriver's
// privateOptions.
func TestParameterWithoutEffectIsRefused(t *testing.T) {
	t.Parallel()
	vain := strings.Fields(strings.Join(slices.Collect(maps.Keys(vainParams)), " "))
	require.Subset(t, vain, strings.Fields("dialer_retries dialer_retry_timeout failing_timeout_seconds max_active_conns max_concurrent_dials "+
		"max_idle_conns max_retries max_retry_backoff min_idle_conns min_retry_backoff pipeline_pool_size pipeline_read_buffer_size "+
		"pipeline_write_buffer_size pool_size pool_timeout read_timeout unstable_resp3 write_timeout"))
	for _, name := range vain {
		for base, rest := range map[string]string{
			"setnx+redis://h?": "", "hashreentrant+rediss://h?": "", "blpop+unix:///s?": "", "setnx+redis-cluster://h?": "",
			"setnx+rediss-cluster://h?": "", "redlock+redis://h1?": "&node=h2&node=h3", "setnx+redis-sentinel://h?": "&master_name=m",
		} {
			url := base + name + "=5" + rest
			t.Run(url, func(t *testing.T) {
				_, err := testRegistry(t).plan(Config{URL: url})
				if strings.Contains(base, "sentinel") && slices.Contains(strings.Fields(sentinelParams), name) {
					require.NoError(t, err)
					return
				}
				require.ErrorIs(t, err, locker.ErrInvalid)
				require.ErrorContains(t, err, name+" has no effect on locks, so leave it out: "+inVain(name))
			})
		}
	}
	_, err := testRegistry(t).plan(Config{Strategy: "redlock", Nodes: []Node{{URL: "redis://h1?pool_size=5"}, {Addr: "h2"}, {Addr: "h3"}}})
	require.ErrorIs(t, err, locker.ErrInvalid)
	require.ErrorContains(t, err, "nodes[0].url")
	require.ErrorContains(t, err, "pool_size has no effect")
}

// Open's own client has no connection: no lock is taken on one.
func TestOpenedClientHasNoConnections(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	admin := srv.Client(t)
	l, release, err := OpenURL(context.Background(), "hashreentrant+"+srv.URL()+"?client_name=app&conn_max_idle_time=1m")
	require.NoError(t, err)
	defer release()
	clients := func() (all string) {
		all, err := admin.ClientList(t.Context()).Result()
		require.NoError(t, err)
		return all
	}
	require.NotContains(t, clients(), "name=app")
	lease, err := l.TryLock(t.Context(), "k")
	require.NoError(t, err)
	require.Contains(t, clients(), "name=app:locker ")
	require.NotContains(t, clients(), "name=app ", "a connection of the client that Open made")
	require.NoError(t, lease.Unlock(t.Context()))
}

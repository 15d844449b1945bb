package redisconn

import (
	"errors"
	"testing"

	"github.com/distlock/locker/conformance/faultproxy"
	"github.com/distlock/locker/internal/test/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// go-redis still has what dialerOf reads; hooks that were added later count.
func TestDialerOf(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer rdb.Close()
	dial := dialerOf(rdb)
	require.NotNil(t, dial)
	_, err := dial(t.Context(), "tcp", "127.0.0.1:1")
	require.Error(t, err)
	rdb.AddHook(tunnel{addr: server.Addr()})
	conn, err := dial(t.Context(), "tcp", "127.0.0.1:1")
	require.NoError(t, err)
	require.Equal(t, server.Addr(), conn.RemoteAddr().String())
	require.NoError(t, conn.Close())
	require.Nil(t, dialerOf(&redis.Client{}), "without what it reads")
}

// With a go-redis whose hooks cannot be read, the caller's connections serve the locks: they
// are where they are meant to be, and nothing of the caller's is closed.
func TestCallersConnectionsServe(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", PoolSize: 1})
	defer rdb.Close()
	rdb.AddHook(tunnel{addr: faultproxy.Start(t, server.Addr()).Addr()})
	d := toy{openSingle(rdb, nil)}
	held := claim{"k", "id"}
	err := d.Acquire(t.Context(), held)
	require.NoError(t, err)
	d.Renew(t.Context(), []claim{held}, func(_ int, e error) { err = errors.Join(err, e) })
	require.NoError(t, err)
	require.Nil(t, d.NewBlocking(1e9), "waiters poll")
	require.NoError(t, d.Release(t.Context(), held))
	require.NoError(t, d.Close())
	require.NoError(t, rdb.Ping(t.Context()).Err())
}

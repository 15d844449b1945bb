package strategies

import (
	"context"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/internal/test/redistest"
	"github.com/distlock/locker/strategy/setnx"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// nobody listens there.
const nowhere = "127.0.0.1:1"

// tunnel is a hook that connects to a server of its own, whatever the client's address is.
type tunnel struct{ addr string }

func (h tunnel) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, _, _ string) (net.Conn, error) { return next(ctx, "tcp", h.addr) }
}
func (tunnel) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (tunnel) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// hooked is a client with an address, whose hook connects to another.
func hooked(t *testing.T, addr, to string) *redis.Client {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	t.Cleanup(func() { _ = rdb.Close() })
	rdb.AddHook(tunnel{to})
	return rdb
}

// Locks are where the client's other commands go, though its address is that of a server
// which could be connected to, or of none: two Lockers whose clients reach the same server
// never hold a key at once.
func TestHookNamesTheServer(t *testing.T) {
	t.Parallel()
	for name, newLocker := range onOneRedis {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			other, server := redistest.Start(t), redistest.Start(t)
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			var section sync.Mutex
			var callers sync.WaitGroup
			for _, addr := range []string{other.Addr(), nowhere, server.Addr()} {
				l, err := newLocker(hooked(t, addr, server.Addr()))
				require.NoError(t, err)
				defer l.Close()
				callers.Go(func() {
					for range 10 {
						lease, err := l.Lock(ctx, "k")
						if err != nil {
							t.Error(err)
							return
						}
						if !section.TryLock() {
							t.Error("two hold the key")
							return
						}
						time.Sleep(time.Millisecond) // a section takes a while, in which the others ask for the key
						section.Unlock()
						if err := lease.Unlock(ctx); err != nil {
							t.Error(err)
						}
					}
				})
			}
			callers.Wait()
			require.Zero(t, other.Client(t).DBSize(ctx).Val(), "what the other server was sent")
		})
	}
}

// A client that only a hook can connect serves all that a Locker does.
func TestClientThatOnlyAHookConnects(t *testing.T) {
	t.Parallel()
	for name, newLocker := range onOneRedis {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			var all [2]locker.Locker
			for i := range all {
				var err error
				all[i], err = newLocker(hooked(t, nowhere, server.Addr()))
				require.NoError(t, err)
				defer all[i].Close()
			}
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			lease, err := all[0].Lock(ctx, "k")
			require.NoError(t, err)
			require.NoError(t, lease.Renew(ctx))
			var keys []string
			for h, err := range all[1].(*locker.Client).Holders(ctx, "*") {
				require.NoError(t, err)
				keys = append(keys, h.Key)
			}
			require.Equal(t, []string{"k"}, keys)

			waits := make(chan error, 1)
			go func() {
				lease, err := all[1].Lock(ctx, "k")
				if err == nil {
					err = lease.Unlock(ctx)
				}
				waits <- err
			}()
			if wakes(name) {
				require.Eventually(t, func() bool {
					clients := server.Client(t)
					return clients.PubSubNumSub(ctx, "redisson_lock__channel:{k}").Val()["redisson_lock__channel:{k}"] > 0 ||
						blocked(ctx, clients)
				}, 10*time.Second, time.Millisecond, "it is woken by the server")
			}
			require.NoError(t, lease.Unlock(ctx))
			require.NoError(t, <-waits)
		})
	}
}

// blocked reports whether a client blocks.
func blocked(ctx context.Context, rdb *redis.Client) bool {
	info := rdb.Info(ctx, "clients").Val()
	return strings.Contains(info, "blocked_clients:") && !strings.Contains(info, "blocked_clients:0")
}

// Replicas are waited for through a hook, too.
func TestReplicaAcksThroughAHook(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.WithConfig("--repl-diskless-sync-delay", "0"))
	host, port, err := net.SplitHostPort(server.Addr())
	require.NoError(t, err)
	replica := redistest.Start(t, redistest.WithConfig("--replicaof", host, port)).Client(t)
	require.Eventually(t, func() bool {
		role, err := replica.Do(t.Context(), "role").Slice()
		return err == nil && len(role) > 3 && role[3] == "connected"
	}, 20*time.Second, 10*time.Millisecond, "the replica follows")
	l, err := setnx.New(hooked(t, nowhere, server.Addr()), setnx.WithReplicaAcks(1, 3*time.Second))
	require.NoError(t, err)
	defer l.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	lease, err := l.Lock(ctx, "k")
	require.NoError(t, err)
	require.NoError(t, lease.Renew(ctx))
	require.NoError(t, lease.Unlock(ctx))
}

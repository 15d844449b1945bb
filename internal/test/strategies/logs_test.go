package strategies

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/conformance/faultproxy"
	"github.com/distlock/locker/internal/test/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// The claim's identity in the store and the password stand in no log and in no error,
// whatever goes wrong.
func TestLogsAndErrorsTellNoValues(t *testing.T) {
	const password = "correct-horse"
	for name, newLocker := range onOneRedis {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := redistest.Start(t)
			srv.AddUser(t, "app", password, "+@all", "~*", "&*")
			proxy := faultproxy.Start(t, srv.Addr())
			admin, rdb := srv.Client(t), redis.NewClient(&redis.Options{Addr: proxy.Addr(), Username: "app", Password: password})
			t.Cleanup(func() { _ = rdb.Close() })
			var said lockedBuffer
			l, err := newLocker(rdb, locker.WithTTL(time.Second), locker.WithRenewInterval(50*time.Millisecond),
				locker.WithLogger(slog.New(slog.NewTextHandler(&said, &slog.HandlerOptions{Level: slog.LevelDebug}))))
			require.NoError(t, err)
			defer l.Close()
			note := func(err error) { fmt.Fprintln(&said, err) }

			ctx := t.Context()
			values := []string{password}
			lock := func() *locker.Lease {
				lease, err := l.Lock(ctx, "k")
				require.NoError(t, err)
				values = append(values, storedValues(t, admin)...)
				return lease
			}
			lease := lock()
			_, err = l.TryLock(ctx, "k")
			note(err)
			require.NoError(t, lease.Unlock(ctx))
			note(lease.Unlock(ctx))

			lease = lock()
			require.NoError(t, admin.Del(ctx, "k").Err())
			<-lease.Lost()
			note(lease.Renew(ctx))
			note(context.Cause(lease.Context(ctx)))
			note(lease.Unlock(ctx))

			lease = lock()
			proxy.Refuse(true)
			<-lease.Lost()
			note(lease.Unlock(ctx))
			_, err = l.TryLock(ctx, "other")
			note(err)
			proxy.Refuse(false)

			require.NoError(t, admin.LPush(ctx, "list", "value of somebody's").Err())
			_, err = l.TryLock(ctx, "list")
			require.ErrorIs(t, err, locker.ErrConflict)
			note(err)
			values = append(values, "value of somebody's")

			require.Greater(t, len(values), 4)
			require.Contains(t, said.String(), `msg="lock lost" strategy=`+name+" key=k token=")
			for _, v := range values {
				require.NotContains(t, said.String(), v)
			}
		})
	}
}

// storedValues returns the string at key "k", or the fields of the hash.
func storedValues(t *testing.T, admin *redis.Client) []string {
	t.Helper()
	if v, err := admin.Get(t.Context(), "k").Result(); err == nil {
		return []string{v}
	}
	fields, err := admin.HKeys(t.Context(), "k").Result()
	require.NoError(t, err)
	return slices.DeleteFunc(fields, func(f string) bool { return f == "" })
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

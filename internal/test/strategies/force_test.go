package strategies

import (
	"context"
	"testing"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/internal/test/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// ForceUnlock of a hold that has ended beside another one leaves the other one alone: where
// the owner is named, and where a process has joined a hold by its made-up name.
func TestForceUnlockOfAnEndedShare(t *testing.T) {
	onHashes(t, func(t *testing.T, rdb *redis.Client, open func(...locker.Option) locker.Locker) {
		dead, live := open(), open()
		for _, owner := range []string{"ann", ""} {
			ctx := t.Context()
			if owner != "" {
				ctx = locker.ContextWithOwner(ctx, owner)
			}
			ended, err := dead.Lock(ctx, "k", locker.WithTTL(300*time.Millisecond), locker.WithoutRenewal())
			require.NoError(t, err)
			over := time.Now().Add(300 * time.Millisecond) // at the latest, also for the store
			h, err := live.(*locker.Client).Inspect(t.Context(), "k")
			require.NoError(t, err)
			lease, err := live.Lock(locker.ContextWithOwner(t.Context(), ended.Owner()), "k", locker.WithTTL(time.Minute))
			require.NoError(t, err)
			require.Equal(t, 2, lease.Holds()+ended.Holds())
			<-ended.Lost()
			time.Sleep(time.Until(over.Add(10 * time.Millisecond))) // the end of a TTL in the store is no event
			require.ErrorIs(t, live.(*locker.Client).ForceUnlock(t.Context(), h), locker.ErrNotHeld)
			require.NoError(t, lease.Renew(t.Context()))
			h, err = live.(*locker.Client).Inspect(t.Context(), "k")
			require.NoError(t, err)
			require.NoError(t, live.(*locker.Client).ForceUnlock(t.Context(), h))
			require.ErrorIs(t, lease.Renew(t.Context()), locker.ErrLost)
		}
	})
}

// The users of the documented applications may take a lock away; one who may not learns
// so by the server's words.
func TestForceUnlockPermissions(t *testing.T) {
	for name, newLocker := range onOneRedis {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := redistest.Start(t)
			rules := documentedRules(t)[name]
			srv.AddUser(t, "locks", "secret", rules...)
			open := func(user string) locker.Locker {
				o := srv.Options()
				o.Username, o.Password = user, "secret"
				rdb := redis.NewClient(o)
				t.Cleanup(func() { _ = rdb.Close() })
				l, err := newLocker(rdb, locker.WithPrefix("app:"))
				require.NoError(t, err)
				t.Cleanup(func() { require.NoError(t, l.Close()) })
				return l
			}
			l := open("locks")
			held := func() (*locker.Lease, locker.Holder) {
				lease, err := l.Lock(t.Context(), "k")
				require.NoError(t, err)
				h := inspectAsAdmin(t, srv, newLocker, "k")
				require.True(t, h.Held)
				return lease, h
			}
			lease, h := held()
			require.NoError(t, l.(*locker.Client).ForceUnlock(t.Context(), h))
			require.ErrorIs(t, lease.Unlock(t.Context()), locker.ErrLost)
			require.ErrorIs(t, l.(*locker.Client).ForceUnlock(t.Context(), h), locker.ErrNotHeld)

			lease, h = held()
			read := "-hget"
			if name == "setnx" {
				read = "-get"
			}
			for _, missing := range []string{read, "-type", "-del"} {
				srv.AddUser(t, "less", "secret", append(rules, missing)...)
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				err := open("less").(*locker.Client).ForceUnlock(ctx, h)
				cancel()
				require.ErrorIs(t, err, locker.ErrUnavailable, missing)
				require.NotErrorIs(t, err, locker.ErrNotHeld)
				require.Regexp(t, "NOPERM|can't run this command|has no permissions", err.Error())
			}
			require.NoError(t, lease.Unlock(t.Context()))
		})
	}
}

func inspectAsAdmin(t *testing.T, srv *redistest.Server, newLocker func(redis.UniversalClient, ...locker.Option) (*locker.Client, error), key string) locker.Holder {
	t.Helper()
	l, err := newLocker(srv.Client(t), locker.WithPrefix("app:"))
	require.NoError(t, err)
	defer l.Close()
	h, err := l.Inspect(t.Context(), key)
	require.NoError(t, err)
	return h
}

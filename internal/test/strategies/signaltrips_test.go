package strategies

import (
	"strings"
	"testing"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/conformance/faultproxy"
	"github.com/distlock/locker/internal/test/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// On one Redis the command that inspects the lock also sends the request, and the command that breaks the lock also sends
// the signal. The test holds up all other signals, which are for servers that cannot do that.
func TestSignalsGoWithTheCommand(t *testing.T) {
	for name, newLocker := range onOneRedis {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := redistest.Start(t)
			proxy := faultproxy.Start(t, srv.Addr())
			rdb := redis.NewClient(&redis.Options{Addr: proxy.Addr()})
			defer rdb.Close()
			holder, err := newLocker(srv.Client(t), locker.WithTTL(watchedTTL))
			require.NoError(t, err)
			defer func() { require.NoError(t, holder.Close()) }()
			sender, err := newLocker(rdb)
			require.NoError(t, err)
			defer func() { require.NoError(t, sender.Close()) }()
			sent := func(name string) int {
				return proxy.Count(func(cmd []string) bool { return strings.HasPrefix(strings.ToLower(cmd[0]), name) })
			}
			for _, key := range []string{"k", "{a}b", "a b"} {
				lease, err := holder.Lock(t.Context(), key)
				require.NoError(t, err)
				asked := lease.ReleaseRequested()
				h, err := sender.Inspect(t.Context(), key) // the script is known
				require.NoError(t, err)

				proxy.ResetCounts()
				require.NoError(t, sender.RequestRelease(t.Context(), key))
				await(t, asked, "the request")
				require.Equal(t, 1, sent("eval"), "it looks, and asks")
				require.Zero(t, sent("publish"))

				late := proxy.Delay(faultproxy.MatchCommand("publish"), 0, time.Minute)
				broken := make(chan error, 1)
				go func() { broken <- sender.ForceUnlock(t.Context(), h) }()
				await(t, lease.Lost(), "the loss")
				late.Stop()
				require.NoError(t, <-broken)
			}
		})
	}
}

// The Locker sends the request itself where the holder's owner was named, as the script cannot choose whom to ask. It also
// does where the user may not publish, and returns the server's refusal.
func TestRequestsThatDoNotGoWithTheCommand(t *testing.T) {
	for name, newLocker := range onOneRedis {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := redistest.Start(t)
			holder, err := newLocker(srv.Client(t))
			require.NoError(t, err)
			defer func() { require.NoError(t, holder.Close()) }()
			sender, err := newLocker(srv.Client(t))
			require.NoError(t, err)
			defer func() { require.NoError(t, sender.Close()) }()
			lease, err := holder.Lock(locker.ContextWithOwner(t.Context(), "ann"), "named")
			require.NoError(t, err)
			asked := lease.ReleaseRequested()
			require.NoError(t, sender.RequestRelease(t.Context(), "named"))
			await(t, asked, "the request")
			require.NoError(t, lease.Unlock(t.Context()))

			srv.AddUser(t, "mute", "secret", "~*", "&*", "+@all", "-publish")
			o := srv.Options()
			o.Username, o.Password = "mute", "secret"
			rdb := redis.NewClient(o)
			defer rdb.Close()
			mute, err := newLocker(rdb)
			require.NoError(t, err)
			defer func() { require.NoError(t, mute.Close()) }()
			lease, err = holder.Lock(t.Context(), "k")
			require.NoError(t, err)
			asked = lease.ReleaseRequested()
			err = mute.RequestRelease(t.Context(), "k")
			require.ErrorIs(t, err, locker.ErrUnavailable)
			require.ErrorContains(t, err, "publish")
			h, err := mute.Inspect(t.Context(), "k")
			require.NoError(t, err)
			require.NoError(t, mute.ForceUnlock(t.Context(), h), "what it may do it does")
			require.ErrorIs(t, lease.Renew(t.Context()), locker.ErrLost)
			select {
			case <-asked:
				require.Fail(t, "a request has arrived that may not be sent")
			default:
			}
		})
	}
}

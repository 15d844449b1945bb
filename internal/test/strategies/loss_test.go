package strategies

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/conformance/faultproxy"
	"github.com/distlock/locker/internal/test/redistest"
	"github.com/distlock/locker/strategy"
	"github.com/distlock/locker/strategy/memory"
	"github.com/distlock/locker/strategy/redlock"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

var notifying = redistest.WithConfig("--notify-keyspace-events", "Kg$xeh")

// lostSoon locks key, waits until it is watched, deletes it, and waits for the loss.
func lostSoon(t *testing.T, l locker.Locker, rdb redis.UniversalClient, key string) {
	t.Helper()
	lease, err := l.Lock(t.Context(), key)
	require.NoError(t, err)
	end := lease.Deadline()
	require.Eventually(t, func() bool { return lease.Deadline().After(end) }, 8*time.Second, time.Millisecond, "it is renewed when it is watched")
	require.NoError(t, rdb.Del(t.Context(), key).Err())
	await(t, lease.Lost(), "the loss")
	require.ErrorIs(t, lease.Unlock(t.Context()), locker.ErrLost)
}

// Locks that are given back at once are not watched, and cost two commands as without detection. What watched is gone
// when nothing is held.
func TestLossDetectionCostsShortLocksNothing(t *testing.T) {
	for name, newLocker := range onOneRedis {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := redistest.Start(t, notifying)
			proxy := faultproxy.Start(t, srv.Addr())
			rdb := redis.NewClient(&redis.Options{Addr: proxy.Addr()})
			defer rdb.Close()
			l, err := newLocker(rdb, locker.WithLossDetection())
			require.NoError(t, err)
			defer func() { require.NoError(t, l.Close()) }()
			admin := srv.Client(t)
			lostSoon(t, l, admin, "k")
			count := func(verb string) int {
				return proxy.Count(func(cmd []string) bool { return strings.EqualFold(cmd[0], verb) })
			}
			require.Equal(t, 1, count("subscribe"))
			for i := range 200 {
				lease, err := l.Lock(t.Context(), fmt.Sprint("short", i%3))
				require.NoError(t, err)
				require.NoError(t, lease.Unlock(t.Context()))
			}
			require.LessOrEqual(t, count("subscribe"), 20, "only those that took longer than 10 ms are watched")
			require.Eventually(t, func() bool {
				list, err := admin.Do(t.Context(), "client", "list", "type", "pubsub").Text()
				return err == nil && list == ""
			}, 10*time.Second, 10*time.Millisecond, "somebody listens though nothing is held")
			lostSoon(t, l, admin, "k")
		})
	}
}

// A server without notifications is reported once, and locks go on as without detection.
func TestLossDetectionWithoutNotifications(t *testing.T) {
	srv := redistest.Start(t)
	var log lockedBuffer
	l, err := onOneRedis["setnx"](srv.Client(t), locker.WithLossDetection(), locker.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
	require.NoError(t, err)
	defer func() { require.NoError(t, l.Close()) }()
	lease, err := l.Lock(t.Context(), "k")
	require.NoError(t, err)
	require.Eventually(t, func() bool { return strings.Contains(log.String(), "notify-keyspace-events") }, 8*time.Second, time.Millisecond)
	require.NoError(t, lease.Renew(t.Context()))
	require.NoError(t, lease.Unlock(t.Context()))
}

// Strategies that cannot see a loss refuse the option, by name.
func TestLossDetectionIsRefused(t *testing.T) {
	var nodes []redis.UniversalClient // nobody asks them anything
	for port := range 3 {
		rdb := redis.NewClient(&redis.Options{Addr: fmt.Sprint("127.0.0.1:", port+1)})
		defer rdb.Close()
		nodes = append(nodes, rdb)
	}
	_, err := redlock.New(nodes, locker.WithLossDetection())
	require.ErrorIs(t, err, locker.ErrInvalid)
	require.ErrorIs(t, err, errors.ErrUnsupported)
	require.ErrorContains(t, err, "redlock")
	require.ErrorContains(t, err, "WithLossDetection")
}

// The parameter of a URL does what the option does.
func TestLossDetectionByURL(t *testing.T) {
	l, release, err := strategy.OpenURL(t.Context(), "memory://"+t.Name()+"?loss_detection=on")
	require.NoError(t, err)
	defer release()
	s := memory.NewStore()
	detecting, err := s.New(locker.WithLossDetection())
	require.NoError(t, err)
	defer detecting.Close()
	lease, err := detecting.Lock(t.Context(), "k")
	require.NoError(t, err)
	require.True(t, s.Break("k"))
	await(t, lease.Lost(), "the loss")
	require.NoError(t, l.Close())
}

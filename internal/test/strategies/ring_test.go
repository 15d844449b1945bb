package strategies

import (
	"context"
	"fmt"
	"testing"

	"github.com/distlock/locker"
	"github.com/distlock/locker/internal/test/redistest"
	"github.com/distlock/locker/strategy/setnx"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// Holders goes through all servers of a Ring.
func TestHoldersOnARing(t *testing.T) {
	addrs := make(map[string]string)
	for _, name := range []string{"a", "b", "c"} {
		addrs[name] = redistest.Start(t).Addr()
	}
	ring := redis.NewRing(&redis.RingOptions{Addrs: addrs})
	defer ring.Close()
	for name, rdb := range map[string]redis.UniversalClient{"a Ring": ring, "a wrapper of one": struct{ *redis.Ring }{ring}} {
		l, err := setnx.New(rdb, locker.WithPrefix(name))
		require.NoError(t, err)
		defer l.Close()
		want := make(map[string]bool)
		for i := range 30 {
			lease, err := l.Lock(t.Context(), fmt.Sprint("key", i))
			require.NoError(t, err)
			want[lease.Key()] = true
		}
		seen := make(map[string]bool)
		for h, err := range l.Holders(t.Context(), "*") {
			require.NoError(t, err)
			require.False(t, seen[h.Key], h.Key)
			seen[h.Key] = true
		}
		require.Equal(t, want, seen)
	}
}

// anyClient may be one of several servers.
type anyClient struct{ redis.UniversalClient }

// Holders of a client that may be several servers returns an error.
func TestHoldersOfAnUnknownClient(t *testing.T) {
	rdb := redistest.Start(t).Client(t)
	l, err := setnx.New(anyClient{rdb})
	require.NoError(t, err)
	defer l.Close()
	_, err = l.Lock(t.Context(), "k")
	require.NoError(t, err)
	n := 0
	for _, err := range l.Holders(context.Background(), "*") {
		require.ErrorIs(t, err, locker.ErrInvalid)
		require.ErrorContains(t, err, "anyClient")
		n++
	}
	require.Equal(t, 1, n)
	_, err = l.Inspect(t.Context(), "k")
	require.NoError(t, err)
}

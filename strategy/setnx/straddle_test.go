package setnx

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/driver"
	"github.com/distlock/locker/internal/redisconn"
	"github.com/distlock/locker/internal/redisdriver"
	"github.com/distlock/locker/internal/test/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// A renewal that a healthy server has answered is answered, while a hung one has the claim
// before it in the batch: another node of a cluster, or another server of a Ring.
func TestRenewalsBesideAHungServer(t *testing.T) {
	t.Run("cluster", func(t *testing.T) {
		c := redistest.StartCluster(t, 3, 0)
		var keys [2]string // of one Shard, on two nodes
		for i := 0; keys[0] == "" || keys[1] == ""; i++ {
			k := fmt.Sprint("k", i)
			switch s := redisconn.Slot(k); {
			case s/1024 != 5:
			case c.ShardOf(t, k) == 0:
				keys[0] = k
			default:
				keys[1] = k
			}
		}
		renewBesideAHung(t, c.Client(t), keys, c.MasterOf(t, keys[0]))
	})
	t.Run("ring", func(t *testing.T) {
		servers := map[string]*redistest.Server{"a": redistest.Start(t), "b": redistest.Start(t)}
		ring := redis.NewRing(&redis.RingOptions{
			Addrs:              map[string]string{"a": servers["a"].Addr(), "b": servers["b"].Addr()},
			HeartbeatFrequency: time.Hour, ContextTimeoutEnabled: true,
		})
		t.Cleanup(func() { _ = ring.Close() })
		keys, hung := [2]string{}, servers["a"]
		for i := 0; keys[0] == "" || keys[1] == ""; i++ {
			k := fmt.Sprint("k", i)
			require.NoError(t, ring.Set(t.Context(), k, "x", 0).Err())
			on := hung.Client(t).Exists(t.Context(), k).Val()
			require.NoError(t, ring.Del(t.Context(), k).Err())
			keys[1-on] = k
		}
		renewBesideAHung(t, ring, keys, hung)
	})
}

func renewBesideAHung(t *testing.T, rdb redis.UniversalClient, keys [2]string, hung *redistest.Server) {
	t.Helper()
	d, err := redisdriver.NewDriver(rdb, protocol)
	require.NoError(t, err)
	defer d.Close()
	var claims []driver.Claim
	for i, key := range keys {
		id := fmt.Sprintf("11111111-1111-4111-8111-111111111111:%d", i)
		claims = append(claims, driver.Claim{Key: key, ID: id, Owner: id, TTL: time.Minute})
		a, err := d.Acquire(t.Context(), driver.Request{Claim: claims[i]})
		require.NoError(t, err)
		require.True(t, a.Granted)
	}
	require.Equal(t, d.Shard(keys[0]), d.Shard(keys[1]))
	d.Renew(t.Context(), claims, func(i int, err error) { require.NoError(t, err) })
	hung.Pause()
	defer hung.Resume()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	answers := [2]chan error{make(chan error, 1), make(chan error, 1)}
	go d.Renew(ctx, claims, func(i int, err error) { answers[i] <- err })
	select {
	case err := <-answers[1]:
		require.NoError(t, err)
	case err := <-answers[0]:
		t.Fatalf("the claim on the hung server was answered first: %v", err)
	}
	cancel()
	err = <-answers[0]
	require.Error(t, err)
	require.NotErrorIs(t, err, locker.ErrLost)
}

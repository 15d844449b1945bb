package etcd_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/distlock/locker/driver"
	"github.com/distlock/locker/strategy/etcd"
	"github.com/stretchr/testify/require"
)

// The Locker lets the next waiter ask while the attempt of another one is unanswered for 300 ms. Of
// attempts that overlap under one Watch one is granted at most, and its claim lasts for its TTL.
func TestOverlappingAttempts(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	a, b := etcd.NewDriver(newClient(t, s)), etcd.NewDriver(newClient(t, s))
	t.Cleanup(func() { _ = a.Close(); _ = b.Close() })
	for i := range 5 {
		key, ids := fmt.Sprint("overlap", i), 0
		request := func(wait bool) driver.Request {
			ids++
			id := fmt.Sprintf("%s claim %d", key, ids)
			return driver.Request{Claim: driver.Claim{Key: key, ID: id, Owner: id, TTL: 10 * time.Second}, Fencing: true, Wait: wait}
		}
		held := request(false)
		ans, err := b.Acquire(t.Context(), held)
		require.NoError(t, err)
		require.True(t, ans.Granted)
		w, err := a.(driver.Notifier).Watch(t.Context(), key)
		require.NoError(t, err)
		ans, err = a.Acquire(t.Context(), request(true))
		require.NoError(t, err)
		require.False(t, ans.Granted)
		require.NoError(t, b.Release(t.Context(), held.Claim))

		var all sync.WaitGroup
		var mu sync.Mutex
		granted := 0
		for range 8 {
			req := request(true)
			all.Go(func() {
				ans, err := a.Acquire(t.Context(), req)
				mu.Lock()
				defer mu.Unlock()
				if err == nil && ans.Granted {
					granted++
				}
			})
		}
		all.Wait()
		require.LessOrEqual(t, granted, 1)
		if granted == 1 {
			require.Never(t, func() bool {
				ans, err := b.Acquire(t.Context(), request(false))
				return err == nil && ans.Granted
			}, 1500*time.Millisecond, 100*time.Millisecond, "its TTL is 10 s")
		}
		w.Close()
	}
}

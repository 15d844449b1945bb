package etcd_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/distlock/locker"
	"github.com/distlock/locker/strategy/etcd"
	"github.com/distlock/locker/strategy/etcd/internal/members"
)

// An empty store replaces the one that was watched, and its revisions begin anew. A watch from the revision of the old
// store on would show nothing for as long as the new one has fewer revisions. The loss of locks that the new store
// grants is noticed at once.
func TestLossDetectionInAStoreThatBeginsAnew(t *testing.T) {
	t.Parallel()
	s, err := members.Take()
	require.NoError(t, err)
	t.Cleanup(func() { members.Put(s, true) })
	client, admin := newClient(t, s), newClient(t, s)
	l, err := etcd.New(client, locker.WithLossDetection(), locker.WithTTL(time.Hour)) // no renewal comes by itself
	require.NoError(t, err)
	defer func() { require.NoError(t, l.Close()) }()
	for i := range 200 {
		_, err := admin.Put(t.Context(), "other", strconv.Itoa(i))
		require.NoError(t, err)
	}
	// watched locks a key, and returns when it is watched.
	watched := func(key string) *locker.Lease {
		lease, err := l.Lock(t.Context(), key)
		require.NoError(t, err)
		end := lease.Deadline()
		require.Eventually(t, func() bool { return lease.Deadline().After(end) }, time.Minute, time.Millisecond, "it is renewed when it is watched")
		return lease
	}
	lost := func(lease *locker.Lease, why string) {
		select {
		case <-lease.Lost():
		case <-time.After(time.Minute):
			require.Fail(t, "the loss did not arrive", why)
		}
	}
	old := watched("old")
	s.Kill()
	require.NoError(t, s.Wipe())
	require.NoError(t, s.Start())
	lease := watched("k")
	_, err = admin.Delete(t.Context(), "locker/k", clientv3.WithPrefix())
	require.NoError(t, err)
	lost(lease, "its member was deleted")
	lost(old, "the store has lost it")
}

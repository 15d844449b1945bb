package redlock

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/strategy/setnx"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// afterSplit is a lease that l was granted after a split vote: two contenders have had three
// of the five nodes until the second try.
func (m *masters) afterSplit(ctx context.Context, t *testing.T, l locker.Locker, key string) *locker.Lease {
	t.Helper()
	first, all := firstNode(key, len(m.servers)), len(m.servers)
	for i, contender := range []string{"1", "1", "2"} {
		value := "00000000-0000-8000-8000-00000000000" + contender + ":1"
		require.NoError(t, m.direct[(first+i)%all].Set(t.Context(), key, value, 0).Err())
	}
	tries := make(chan struct{}, 100)
	spare := m.proxies[(first+3)%all]
	spare.Watch(func(cmd []string) {
		if isOp("acquire")(cmd) {
			select {
			case tries <- struct{}{}:
			default:
			}
		}
	})
	defer spare.Watch(func([]string) {})
	freed := make(chan error, 1)
	go func() {
		for range 2 {
			select {
			case <-tries:
			case <-t.Context().Done():
			}
		}
		var err error
		for i := range 3 {
			if e := m.direct[(first+i)%all].Del(context.WithoutCancel(t.Context()), key).Err(); e != nil {
				err = e
			}
		}
		freed <- err
	}()
	lease, err := l.Lock(ctx, key) // an attempt of two seconds may be over before the keys are free
	require.NoError(t, err)
	require.NoError(t, <-freed)
	return lease
}

// The claim of a lock that was granted after a split vote looks as any other: to an operator,
// to a Locker on one of the nodes, and to its own Locker.
func TestClaimAfterASplitVote(t *testing.T) {
	t.Parallel()
	m := startMasters(t, 5)
	one, err := setnx.New(redis.UniversalClient(m.direct[0]))
	require.NoError(t, err)
	defer one.Close()
	operator := m.locker(t).(*locker.Client)
	for _, opts := range [][]locker.Option{nil, {locker.WithMetadata("host", "web-7", "pid", "4711")}} {
		l := m.locker(t, append(opts, locker.WithTTL(long))...)
		unlock(t, lock(t, l, "warm-up"))
		key := fmt.Sprint("split", len(opts))
		lease := m.afterSplit(t.Context(), t, l, key)
		for i := range m.servers {
			m.holds(t, i, lease)
		}
		h, err := operator.Inspect(t.Context(), key)
		require.NoError(t, err)
		require.Equal(t, "redlock", h.Strategy)
		require.Equal(t, lease.Owner(), h.Owner)
		require.Equal(t, lease.Owner(), h.ID)
		require.GreaterOrEqual(t, h.Token, lease.Token()) // a node that was late may have proposed a greater one
		require.NotZero(t, h.Since)
		if opts != nil {
			require.Equal(t, map[string]string{"host": "web-7", "pid": "4711"}, h.Metadata)
		}
		share, err := one.Inspect(t.Context(), key)
		require.NoError(t, err)
		require.ErrorIs(t, one.ForceUnlock(t.Context(), share), locker.ErrConflict)
		m.holds(t, 0, lease)

		require.NoError(t, lease.Renew(t.Context()))
		require.NoError(t, l.(*locker.Client).ForceUnlock(t.Context(), h))
		select {
		case <-lease.Lost(): // long before a renewal
		case <-time.After(long / 6):
			require.Fail(t, "the lease that its own Locker has broken is not lost")
		}
		require.ErrorIs(t, lease.Unlock(t.Context()), locker.ErrLost)
	}
}

// A named owner keeps the name, and its claim is renewed and released.
func TestNamedOwnerAfterASplitVote(t *testing.T) {
	t.Parallel()
	m := startMasters(t, 5)
	l := m.locker(t, locker.WithTTL(long))
	unlock(t, lock(t, l, "warm-up"))
	lease := m.afterSplit(locker.ContextWithOwner(t.Context(), "alice"), t, l, "k")
	require.Equal(t, "alice", lease.Owner())
	require.NoError(t, lease.Renew(t.Context()))
	unlock(t, lease)
	for i := range m.servers {
		m.free(t, long/3, i, "k")
	}
}

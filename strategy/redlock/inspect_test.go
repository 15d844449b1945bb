package redlock

import (
	"testing"

	"github.com/distlock/locker"
	"github.com/distlock/locker/strategy/setnx"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// A lock that may be on a majority, with the node that is silent, is told of as held.
func TestInspectWithASilentNode(t *testing.T) {
	t.Parallel()
	m := startMasters(t, 3)
	lease := lock(t, m.locker(t, locker.WithTTL(long), locker.WithoutRenewal()), "k")
	for i := range m.servers {
		m.holds(t, i, lease)
	}
	require.NoError(t, m.direct[1].Del(t.Context(), "k").Err()) // as if it had restarted empty
	m.kill(2)
	operator := m.locker(t).(locker.Admin)
	h, err := operator.Inspect(t.Context(), "k")
	require.NoError(t, err)
	require.True(t, h.Held)
	require.Equal(t, lease.Owner(), h.Owner)
	require.NoError(t, m.direct[0].Del(t.Context(), "k").Err())
	h, err = operator.Inspect(t.Context(), "k")
	require.NoError(t, err)
	require.False(t, h.Held, "a majority says that it is free")
}

// A Locker on one of the nodes does not take a lock that is on others, too.
func TestOneNodeDoesNotBreakAQuorum(t *testing.T) {
	t.Parallel()
	m := startMasters(t, 3)
	lease := lock(t, m.locker(t), "k")
	for i := range m.servers {
		m.holds(t, i, lease)
	}
	l, err := setnx.New(redis.UniversalClient(m.direct[0]))
	require.NoError(t, err)
	defer l.Close()
	one := l.(locker.Admin)
	h, err := one.Inspect(t.Context(), "k")
	require.NoError(t, err)
	require.Equal(t, "redlock", h.Strategy)
	require.ErrorIs(t, one.ForceUnlock(t.Context(), h), locker.ErrConflict)
	m.holds(t, 0, lease)
	unlock(t, lease)
}

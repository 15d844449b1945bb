package redlock

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/distlock/locker"
	"github.com/stretchr/testify/require"
)

func have(lease *locker.Lease) int {
	n, _ := lease.Nodes()
	return n
}

// A grant is a majority's; what is lacking follows, for what remains of the lease, and
// though nothing renews it.
func TestLockIsTakenToEveryNode(t *testing.T) {
	t.Parallel()
	m := startMasters(t, 5)
	l := m.locker(t, locker.WithTTL(long), locker.WithoutRenewal())
	for i := 3; i < 5; i++ {
		require.NoError(t, m.direct[i].Set(t.Context(), "k", "somebody else", 0).Err())
	}
	lease := lock(t, l, "k")
	granted := time.Now()
	for i := range 3 {
		m.holds(t, i, lease)
	}
	eventually(t, "the lease knows of three nodes", func() bool { return have(lease) == 3 })
	_, of := lease.Nodes()
	require.Equal(t, 5, of)

	eventually(t, "a second has passed: the lease is shorter than a TTL", func() bool {
		return m.direct[0].PTTL(t.Context(), "k").Val() < long-time.Second
	})
	remains := time.Until(granted.Add(long))
	for i := 3; i < 5; i++ {
		require.NoError(t, m.direct[i].Del(t.Context(), "k").Err())
	}
	for i := 3; i < 5; i++ {
		m.holds(t, i, lease)
		require.LessOrEqual(t, m.direct[i].PTTL(t.Context(), "k").Val(), remains, "it is taken for what remains of the lease")
		require.GreaterOrEqual(t, m.fence(t, i, "k"), lease.Token())
	}
	eventually(t, "the lease knows of five nodes", func() bool { return have(lease) == 5 })

	// Two may forget it: three still have it.
	m.servers[0].Restart(t)
	m.kill(1)
	_, err := m.locker(t).TryLock(t.Context(), "k")
	require.Error(t, err, "it is held")
	require.NoError(t, lease.Renew(t.Context()))
	m.holds(t, 0, lease)
	unlock(t, lease)
	require.Zero(t, have(lease))
}

// Losers of a race are on the nodes that the winner lacks.
func TestWinnersOfRacesAreOnEveryNode(t *testing.T) {
	t.Parallel()
	m := startMasters(t, 5)
	var lockers []locker.Locker
	for range 3 {
		lockers = append(lockers, m.locker(t, locker.WithTTL(long), locker.WithoutRenewal()))
	}
	for r := range 30 {
		key := fmt.Sprint("k", r)
		var mu sync.Mutex
		var winners []*locker.Lease
		var all sync.WaitGroup
		for _, l := range lockers {
			all.Go(func() {
				lease, err := l.TryLock(t.Context(), key)
				if err != nil {
					return
				}
				mu.Lock()
				defer mu.Unlock()
				winners = append(winners, lease)
			})
		}
		all.Wait()
		for _, lease := range winners {
			for i := range m.servers {
				m.holds(t, i, lease)
			}
			eventually(t, "the lease knows that all have it", func() bool { return have(lease) == 5 })
			unlock(t, lease)
		}
	}
}

// A node that was away when a lock was granted gets it when it is back.
func TestNodeThatComesBackIsGivenTheLock(t *testing.T) {
	t.Parallel()
	m := startMasters(t, 3)
	l, d := m.open(t, locker.WithTTL(long), locker.WithoutRenewal())
	m.proxies[2].Refuse(true)
	unlock(t, lock(t, l, "warm-up"))
	lease := lock(t, l, "k")
	eventually(t, "the node is down", d.nodes[2].isDown)
	m.proxies[2].Refuse(false)
	m.holds(t, 2, lease)
	unlock(t, lease)
	m.free(t, 10*time.Second, 2, "k")
}

// Nothing takes a lock to a node once it is being released.
func TestReleasedLockIsTakenNowhere(t *testing.T) {
	t.Parallel()
	m := startMasters(t, 3)
	l := m.locker(t, locker.WithTTL(long))
	joins := 0
	for i := range 200 {
		unlock(t, lock(t, l, fmt.Sprint("k", i%7)))
	}
	for i := range m.servers {
		for k := range 7 {
			m.free(t, 10*time.Second, i, fmt.Sprint("k", k))
		}
		joins += m.proxies[i].Count(isOp("join"))
	}
	t.Logf("%d joins for 200 locks that were held for a moment", joins)
}

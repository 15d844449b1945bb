package redlock

import (
	"context"
	"runtime"
	"testing"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/conformance/faultproxy"
	"github.com/distlock/locker/internal/redisdriver"
	"github.com/distlock/locker/internal/test/redistest"
	"github.com/stretchr/testify/require"
)

// settled waits for all nodes to know what a majority has decided.
func settled(t *testing.T, m *masters, lease *locker.Lease) {
	t.Helper()
	for i := range m.servers {
		m.holds(t, i, lease)
	}
}

func TestTokenOfAKeyInUseTakesOneRound(t *testing.T) {
	t.Parallel()
	m := startMasters(t, 5)
	l := m.locker(t)
	var last int64
	rounds, grants := 0, 20
	for range grants {
		lease := lock(t, l, "k")
		require.Greater(t, lease.Token(), last)
		last = lease.Token()
		settled(t, m, lease)
		unlock(t, lease)
		for i := range m.servers {
			m.free(t, 20*time.Second, i, "k")
		}
	}
	rounds = m.proxies[0].Count(isOp("confirm"))
	t.Logf("%d of %d grants took a second round", rounds, grants)
	require.LessOrEqual(t, rounds, grants/2, "nodes whose clocks agree make the same proposal")
}

func TestTokenIsThatOfAMajority(t *testing.T) {
	t.Parallel()
	m := startMasters(t, 5)
	l := m.locker(t)
	unlock(t, lock(t, l, "k"))
	// One is ahead by an hour: its proposal counts, and a majority has it written down.
	ahead := time.Now().Add(time.Hour).UnixMicro()
	require.NoError(t, m.direct[3].Set(t.Context(), redisdriver.FenceKey("k"), ahead, time.Hour).Err())
	for range 20 {
		lease := lock(t, l, "k")
		token := lease.Token()
		know := 0
		for i := range m.servers {
			if m.fence(t, i, "k") >= token {
				know++
			}
		}
		require.GreaterOrEqual(t, know, 3, "token %d must be known to a majority", token)
		unlock(t, lease)
	}
	require.GreaterOrEqual(t, m.fence(t, 3, "k"), ahead)
	// It is ahead for good, wherever the majority is.
	lease := lock(t, l, "k")
	if lease.Token() > ahead {
		m.kill(3)
		unlock(t, lease)
		last := lease.Token()
		for range 5 {
			lease = lock(t, l, "k")
			require.Greater(t, lease.Token(), last)
			last = lease.Token()
			unlock(t, lease)
		}
	}
}

// The token of a lost counter starts at the node's clock.
func TestTokenAfterLossOfEverything(t *testing.T) {
	t.Parallel()
	m := startMasters(t, 3)
	l := m.locker(t)
	var last int64
	for range 30 {
		lease := lock(t, l, "k")
		require.Greater(t, lease.Token(), last)
		last = lease.Token()
		settled(t, m, lease)
		unlock(t, lease)
		for i := range m.servers {
			require.NoError(t, m.direct[i].FlushAll(t.Context()).Err())
		}
	}
}

// A counter raised by another node's clock is kept as long as any other.
func TestRaisedCounterIsKeptAnew(t *testing.T) {
	t.Parallel()
	m := startMasters(t, 3)
	l := m.locker(t)
	lease := lock(t, l, "k")
	settled(t, m, lease)
	unlock(t, lease)
	fence := redisdriver.FenceKey("k")
	for i := range 3 {
		m.free(t, 20*time.Second, i, "k")
		require.NoError(t, m.direct[i].PExpire(t.Context(), fence, time.Minute).Err())
	}
	require.NoError(t, m.direct[0].Set(t.Context(), fence, time.Now().Add(time.Hour).UnixMicro(), time.Minute).Err())
	eventually(t, "a grant that node 0 takes part in, first", func() bool {
		lease := lock(t, l, "k")
		token := lease.Token()
		settled(t, m, lease)
		unlock(t, lease)
		return token >= m.fence(t, 0, "k")
	})
	raised := 0
	for i := 1; i < 3; i++ {
		if m.direct[i].PTTL(t.Context(), fence).Val() > 5*time.Minute {
			raised++
		}
	}
	require.Positive(t, raised, "a counter that was raised to another node's is kept for the whole retention")
}

func TestWithoutFencing(t *testing.T) {
	t.Parallel()
	m := startMasters(t, 3)
	l := m.locker(t, locker.WithoutFencing(), locker.WithRenewInterval(100*time.Millisecond))
	for range 3 {
		lease := lock(t, l, "k")
		require.Zero(t, lease.Token())
		settled(t, m, lease)
		require.NoError(t, lease.Renew(t.Context()))
		unlock(t, lease)
	}
	// A node that joins learns of the lock and of no token.
	lease := lock(t, l, "k")
	settled(t, m, lease)
	require.NoError(t, m.direct[1].FlushAll(t.Context()).Err())
	m.holds(t, 1, lease)
	unlock(t, lease)
	for i, p := range m.proxies {
		require.Zero(t, p.Count(isOp("confirm")), "without a token there is nothing to confirm")
		require.Zero(t, m.fence(t, i, "k"))
	}
}

// The tokens of hand-overs inside the process are reserved on a majority by the grant, so
// that the next grant's is greater wherever its majority is.
func TestTokensOfHandOversAreAMajoritys(t *testing.T) {
	t.Parallel()
	const n = 5
	m := startMasters(t, 5)
	waits := make(chan struct{}, n+1)
	l := m.locker(t, locker.WithTTL(long), locker.WithHandOver(n, time.Second),
		locker.WithObserver(locker.ObserverFunc(func(_ context.Context, e locker.Event) {
			if e.Kind == locker.EventWaiting {
				waits <- struct{}{}
			}
		})))
	first := lock(t, l, "k")
	leases := make(chan *locker.Lease)
	for range n + 1 {
		go func() {
			lease, err := l.Lock(t.Context(), "k")
			if err != nil {
				t.Error(err)
			}
			leases <- lease
		}()
		<-waits
	}
	unlock(t, first)
	lease := <-leases
	reserved := lease.Token() + n
	majorityKnows := func() {
		know := 0
		for i := range m.servers {
			if m.fence(t, i, "k") >= reserved {
				know++
			}
		}
		require.GreaterOrEqual(t, know, 3, "token %d must be known to a majority", reserved)
	}
	majorityKnows()
	for range n {
		last := lease.Token()
		unlock(t, lease)
		lease = <-leases
		require.Greater(t, lease.Token(), last) // handed over, unless the machine was slow
	}
	unlock(t, lease)
	for i := range m.servers {
		m.free(t, 20*time.Second, i, "k")
	}
	majorityKnows()
	lease = lock(t, l, "k")
	require.Greater(t, lease.Token(), reserved)
	unlock(t, lease)
}

// A counter that another node's clock has raised is kept until this node's has caught up:
// one clock an hour ahead for a moment does not make tokens go back when counters expire.
func TestRaisedCounterIsKeptUntilTheClockHasCaughtUp(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("clocks of servers can be set on Linux")
	}
	t.Parallel()
	m := &masters{}
	for range 3 {
		s := redistest.Start(t, redistest.WithSettableClock())
		m.servers = append(m.servers, s)
		m.proxies = append(m.proxies, faultproxy.Start(t, s.Addr()))
		m.direct = append(m.direct, s.Client(t))
	}
	l := m.locker(t)
	unlock(t, lock(t, l, "warm-up"))
	m.servers[0].SetClock(t, time.Hour)
	var last int64
	eventually(t, "a grant that the node whose clock is ahead takes part in", func() bool {
		lease := lock(t, l, "k")
		last = lease.Token()
		unlock(t, lease)
		return last > time.Now().Add(time.Hour/2).UnixMicro()
	})
	m.servers[0].SetClock(t, 0)
	for _, later := range []time.Duration{11 * time.Minute, time.Hour - time.Minute, time.Hour + time.Minute, 2 * time.Hour} {
		for _, s := range m.servers {
			s.SetClock(t, later)
		}
		for i := range m.servers {
			m.free(t, 20*time.Second, i, "k")
		}
		// By the two whose clocks were always right.
		m.proxies[0].Refuse(true)
		lease := lock(t, l, "k", locker.WithTTL(long), locker.WithoutRenewal())
		require.Greater(t, lease.Token(), last, "%v later", later)
		last = lease.Token()
		unlock(t, lease)
		m.proxies[0].Refuse(false)
	}
}

// A counter outlives its lock on each node, however long that is held: grants, joins and
// renewals keep it.
func TestCountersOutliveTheLock(t *testing.T) {
	t.Parallel()
	m := startMasters(t, 3)
	l := m.locker(t, locker.WithTTL(time.Minute), locker.WithoutRenewal())
	key := "k"
	fading := func() { // as it would be at the end of the retention
		for i := range m.servers {
			require.NoError(t, m.direct[i].PExpire(t.Context(), redisdriver.FenceKey(key), 30*time.Second).Err())
		}
	}
	outlives := func(what string, lease *locker.Lease) {
		t.Helper()
		for i := range m.servers {
			m.holds(t, i, lease)
			eventually(t, "the counter is kept by "+what, func() bool {
				left, err := m.direct[i].PTTL(t.Context(), redisdriver.FenceKey(key)).Result()
				require.NoError(t, err)
				return left > 2*time.Minute
			})
		}
	}
	lease := lock(t, l, key)
	outlives("the first grant", lease)
	fading()
	require.NoError(t, lease.Renew(t.Context()))
	outlives("a renewal", lease)
	unlock(t, lease)
	fading()
	lease = lock(t, l, key)
	outlives("the next grant and its join", lease)
	unlock(t, lease)
}

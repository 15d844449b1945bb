package redisdriver_test

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/conformance/faultproxy"
	"github.com/distlock/locker/internal/redisconn"
	"github.com/distlock/locker/internal/test/redistest"
	"github.com/distlock/locker/strategy/setnx"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// replicated is a server with a replica that follows it.
func replicated(t *testing.T) (rdb *redis.Client, replica *redistest.Server) {
	t.Helper()
	master := redistest.Start(t, redistest.WithConfig("--repl-diskless-sync-delay", "0"))
	host, port, err := net.SplitHostPort(master.Addr())
	require.NoError(t, err)
	replica = redistest.Start(t, redistest.WithConfig("--replicaof", host, port))
	rdb = master.Client(t)
	require.Eventually(t, func() bool {
		n, err := rdb.Wait(t.Context(), 1, 100*time.Millisecond).Result()
		return err == nil && n == 1
	}, 20*time.Second, 10*time.Millisecond, "the replica follows")
	return rdb, replica
}

// calls is how many commands of that name the server has run since its statistics were reset.
func calls(t *testing.T, rdb *redis.Client, command string) (n int) {
	t.Helper()
	stats, err := rdb.Info(t.Context(), "commandstats").Result()
	require.NoError(t, err)
	_, stats, _ = strings.Cut(stats, "cmdstat_"+command+":")
	_, _ = fmt.Sscanf(stats, "calls=%d", &n)
	return n
}

// A renewal that the replica has not confirmed is not counted: were the master to die, the
// lock would end there with the lease that the replica knows.
func TestRenewalsAreConfirmed(t *testing.T) {
	t.Parallel()
	rdb, replica := replicated(t)
	ctx := t.Context()
	l, err := setnx.New(rdb, setnx.WithReplicaAcks(1, time.Second), locker.WithTTL(time.Minute), locker.WithoutRenewal())
	require.NoError(t, err)
	defer l.Close()
	lease, err := l.Lock(ctx, "k")
	require.NoError(t, err)
	replica.Pause()
	granted := lease.Deadline()
	err = lease.Renew(ctx)
	require.ErrorIs(t, err, locker.ErrUnavailable)
	require.ErrorContains(t, err, "0 of the 1 replicas")
	require.Less(t, lease.Deadline().Sub(granted), time.Millisecond) // it is computed anew
	replica.Resume()
	require.Eventually(t, func() bool { return lease.Renew(ctx) == nil }, 20*time.Second, time.Millisecond, "it is confirmed again")
	require.True(t, lease.Deadline().After(granted))

	// Leases that are renewed together wait together.
	every := locker.WithRenewInterval(100 * time.Millisecond)
	many, err := setnx.New(rdb, setnx.WithReplicaAcks(1, time.Second), locker.WithTTL(time.Minute), every)
	require.NoError(t, err)
	defer many.Close()
	var leases []*locker.Lease
	for i := range 100 {
		lease, err := many.Lock(ctx, fmt.Sprint("k", i))
		require.NoError(t, err)
		leases = append(leases, lease)
	}
	require.NoError(t, rdb.ConfigResetStat(ctx).Err())
	first := leases[0].Deadline()
	require.Eventually(t, func() bool { return leases[0].Deadline().Sub(first) > 2*time.Second }, 20*time.Second, 10*time.Millisecond, "renewals go on")
	waits, scripts := calls(t, rdb, "wait"), calls(t, rdb, "evalsha")
	require.NotZero(t, waits)
	require.Less(t, waits, scripts/4, "waits, of so many scripts")
}

// Locks and permits that are renewed together are renewed each by its own script.
func TestLocksAndPermitsAreConfirmedTogether(t *testing.T) {
	t.Parallel()
	rdb, _ := replicated(t)
	ctx := t.Context()
	l, err := setnx.New(rdb, setnx.WithReplicaAcks(1, time.Second), locker.WithTTL(time.Minute), locker.WithRenewInterval(100*time.Millisecond))
	require.NoError(t, err)
	defer l.Close()
	semaphore, err := locker.NewSemaphore(l, "s", 9)
	require.NoError(t, err)
	var leases []*locker.Lease
	for i := range 9 {
		lock, err := l.Lock(ctx, fmt.Sprint("k", i))
		require.NoError(t, err)
		permit, err := semaphore.Acquire(ctx)
		require.NoError(t, err)
		leases = append(leases, lock, permit)
	}
	taken := time.Now()
	for _, lease := range leases {
		require.Eventually(t, func() bool { return lease.Err() != nil || lease.Deadline().Sub(taken) > time.Minute+time.Second }, 20*time.Second, 10*time.Millisecond)
		require.NoError(t, lease.Err(), "of %s", lease.Key())
	}
}

func TestReplicaAcks(t *testing.T) {
	t.Parallel()
	rdb, replica := replicated(t)
	ctx := t.Context()
	l, err := setnx.New(rdb, setnx.WithReplicaAcks(1, 2*time.Second))
	require.NoError(t, err)
	defer l.Close()
	lease, err := l.TryLock(ctx, "k")
	require.NoError(t, err)
	held, err := replica.Client(t).Get(ctx, "k").Result()
	require.NoError(t, err, "a grant that was confirmed is on the replica")
	require.Equal(t, lease.Owner(), held)
	require.NoError(t, lease.Unlock(ctx))

	demanding, err := setnx.New(rdb, setnx.WithReplicaAcks(2, 50*time.Millisecond))
	require.NoError(t, err)
	defer demanding.Close()
	_, err = demanding.TryLock(ctx, "k")
	require.ErrorIs(t, err, locker.ErrUnavailable)
	require.ErrorContains(t, err, "1 of the 2 replicas")
	require.Eventually(t, func() bool {
		n, err := rdb.Exists(ctx, "k").Result()
		return err == nil && n == 0
	}, 5*time.Second, time.Millisecond, "a grant that was not confirmed is undone")
	_, err = demanding.Lock(ctx, "k", locker.WithWait(300*time.Millisecond))
	require.ErrorIs(t, err, locker.ErrUnavailable)
	require.NotErrorIs(t, err, locker.ErrNotAcquired)
}

// A grant whose WAIT is refused is undone, too.
func TestGrantThatCannotBeConfirmedIsUndone(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	server.AddUser(t, "bob", "pw", "~*", "&*", "+@all", "-wait")
	o := *server.Options()
	o.Username, o.Password = "bob", "pw"
	rdb := redis.NewClient(&o)
	defer rdb.Close()
	l, err := setnx.New(rdb, setnx.WithReplicaAcks(1, time.Second), locker.WithTTL(time.Minute))
	require.NoError(t, err)
	defer l.Close()
	_, err = l.TryLock(t.Context(), "k")
	require.ErrorContains(t, err, "NOPERM")
	require.Eventually(t, func() bool {
		n, err := server.Client(t).Exists(t.Context(), "k").Result()
		return err == nil && n == 0
	}, 20*time.Second, 10*time.Millisecond, "the key has a holder that nobody knows")
}

func TestReplicaAcksRefusesNonsense(t *testing.T) {
	rdb := redistest.Shared(t).Client(t)
	for _, o := range []locker.Option{
		setnx.WithReplicaAcks(0, time.Second),
		setnx.WithReplicaAcks(-1, time.Second),
		setnx.WithReplicaAcks(1, 0),
	} {
		_, err := setnx.New(rdb, o)
		require.ErrorIs(t, err, locker.ErrInvalid)
	}
}

// A caller that leaves while its attempt is on the way has it taken back behind that, by one
// release.
func TestReleaseFollowsAnAckedAttempt(t *testing.T) {
	t.Parallel()
	rdb, _ := replicated(t)
	ctx := t.Context()
	p := faultproxy.Start(t, rdb.Options().Addr)
	through := redis.NewClient(&redis.Options{Addr: p.Addr()})
	defer through.Close()
	l, err := setnx.New(through, setnx.WithReplicaAcks(1, time.Second))
	require.NoError(t, err)
	defer l.Close()
	lease, err := l.Lock(ctx, "k")
	require.NoError(t, err)
	require.NoError(t, lease.Unlock(ctx))

	is := func(op string) faultproxy.Match {
		return func(cmd []string) bool { return len(cmd) > 1 && redisconn.ScriptName(cmd[1]) == op }
	}
	p.ResetCounts()
	require.NoError(t, rdb.ConfigResetStat(ctx).Err())
	p.Delay(is("acquire"), 1, 100*time.Millisecond)
	_, err = l.Lock(ctx, "k", locker.WithWait(20*time.Millisecond))
	require.Error(t, err)
	require.Eventually(t, func() bool {
		n, err := rdb.Exists(ctx, "k").Result()
		return err == nil && n == 0 && calls(t, rdb, "evalsha") > 1
	}, 20*time.Second, time.Millisecond, "acquired, and released")
	require.Equal(t, 1, p.Count(is("acquire")))
	require.Equal(t, 1, p.Count(is("release")), "the first came too early")
}

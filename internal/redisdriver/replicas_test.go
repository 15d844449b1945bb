package redisdriver_test

import (
	"fmt"
	"github.com/redis/go-redis/v9"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/internal/redistest"
	"github.com/distlock/locker/strategy/setnx"
	"github.com/stretchr/testify/require"
)

// replicated is a server with a replica that follows it.
func replicated(t *testing.T) (rdb *redis.Client, replica *redistest.Server) {
	t.Helper()
	master := redistest.Start(t)
	host, port, err := net.SplitHostPort(master.Addr())
	require.NoError(t, err)
	replica = redistest.Start(t, redistest.WithConfig("--replicaof", host+" "+port))
	rdb = master.Client(t)
	require.Eventually(t, func() bool {
		n, err := rdb.Wait(t.Context(), 1, 100*time.Millisecond).Result()
		return err == nil && n == 1
	}, 20*time.Second, 10*time.Millisecond, "the replica follows")
	return rdb, replica
}

// A renewal that the replica has not confirmed is not counted: were the master to die, the
// lock would end there with the lease that the replica knows.
func TestRenewalsAreConfirmed(t *testing.T) {
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
	stats, err := rdb.Info(ctx, "commandstats").Result()
	require.NoError(t, err)
	var waits, scripts int
	for line := range strings.Lines(stats) {
		_, _ = fmt.Sscanf(line, "cmdstat_wait:calls=%d", &waits)
		_, _ = fmt.Sscanf(line, "cmdstat_evalsha:calls=%d", &scripts)
	}
	require.NotZero(t, waits)
	require.Less(t, waits, scripts/4, "waits, of so many scripts")
}

func TestReplicaAcks(t *testing.T) {
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

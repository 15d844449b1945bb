package redisdriver_test

import (
	"net"
	"testing"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/internal/redistest"
	"github.com/distlock/locker/strategy/setnx"
	"github.com/stretchr/testify/require"
)

func TestReplicaAcks(t *testing.T) {
	master := redistest.Start(t)
	host, port, err := net.SplitHostPort(master.Addr())
	require.NoError(t, err)
	replica := redistest.Start(t, redistest.WithConfig("--replicaof", host+" "+port))
	rdb := master.Client(t)
	ctx := t.Context()
	require.Eventually(t, func() bool {
		n, err := rdb.Wait(ctx, 1, 100*time.Millisecond).Result()
		return err == nil && n == 1
	}, 20*time.Second, 10*time.Millisecond, "the replica follows")

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

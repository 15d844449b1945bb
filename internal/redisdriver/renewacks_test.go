package redisdriver

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/distlock/locker/driver"
	"github.com/distlock/locker/internal/redisconn"
	"github.com/distlock/locker/internal/test/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

func acked(t *testing.T, d *Driver, timeout time.Duration) {
	t.Helper()
	_, err := d.Configure(driver.Config{Logger: slog.New(slog.DiscardHandler), Options: []any{replicaAcks{n: 1, timeout: timeout}}})
	require.NoError(t, err)
}

// renewed are the answers to a renewal of claims, by index.
func renewed(ctx context.Context, d *Driver, claims ...driver.Claim) []error {
	var mu sync.Mutex
	errs := make([]error, len(claims))
	d.Renew(ctx, claims, func(i int, err error) {
		mu.Lock()
		defer mu.Unlock()
		errs[i] = err
	})
	return errs
}

// The store fails over while connections to the old master are open: what is said to be
// renewed is renewed where replicas have confirmed it.
func TestRenewalsAreConfirmedWhereTheyWereSent(t *testing.T) {
	t.Parallel()
	before, after := redistest.Start(t), redistest.Start(t, redistest.WithConfig("--repl-diskless-sync-delay", "0"))
	host, port, err := net.SplitHostPort(after.Addr())
	require.NoError(t, err)
	replica := redistest.Start(t, redistest.WithConfig("--replicaof", host, port)).Client(t)
	require.Eventually(t, func() bool {
		role, err := replica.Do(t.Context(), "role").Slice()
		return err == nil && len(role) > 3 && role[3] == "connected"
	}, 20*time.Second, 10*time.Millisecond, "the replica follows")

	var master atomic.Pointer[redistest.Server]
	master.Store(before)
	rdb := redis.NewClient(&redis.Options{Addr: "master", Dialer: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", master.Load().Addr())
	}})
	defer rdb.Close()
	d, err := NewDriver(rdb, toy)
	require.NoError(t, err)
	defer d.Close()
	acked(t, d, time.Second)
	var claims []driver.Claim
	for i := range 3 {
		c := claimOf(fmt.Sprint("k", i))
		claims = append(claims, c)
		for _, s := range []*redistest.Server{before, after} {
			require.NoError(t, s.Client(t).Set(t.Context(), c.Key, c.ID, 5*time.Second).Err())
		}
	}
	_, err = d.conn.Do(t.Context(), &d.command(d.p.Renew, driver.Request{Claim: claimOf("none")}).Command)
	require.NoError(t, err, "a connection to the old master is open")
	master.Store(after)
	for i, err := range renewed(t.Context(), d, claims...) {
		require.NoError(t, err)
		ttl, err := replica.PTTL(t.Context(), claims[i].Key).Result()
		require.NoError(t, err)
		require.Greater(t, ttl, 30*time.Second, "of key %d at the replica", i)
	}
}

// Renewals that wait for replicas end with their context, and hold no others up.
func TestRenewalsWaitSideBySide(t *testing.T) {
	t.Parallel()
	l := newProxied(t, false)
	acked(t, l.Driver, time.Second)
	var all sync.WaitGroup
	for i := range redisconn.ReplicaPool {
		c := claimOf(fmt.Sprint("k", i))
		require.NoError(t, l.direct.Set(t.Context(), c.Key, c.ID, time.Minute).Err())
		all.Go(func() {
			if err := renewed(t.Context(), l.Driver, c)[0]; err == nil || err.Error() != "0 of the 1 replicas asked for confirmed the write within 1s" {
				t.Errorf("batch %d: %v", i, err)
			}
		})
	}
	all.Wait()

	hung := l.proxy.HangReply(func(cmd []string) bool { return len(cmd) > 1 && redisconn.ScriptName(cmd[1]) == "renew" }, 1)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- renewed(ctx, l.Driver, claimOf("k0"))[0] }()
	require.NoError(t, hung.Wait(t.Context(), 1))
	cancel()
	select {
	case err := <-ended:
		require.ErrorIs(t, err, context.Canceled)
	case <-time.After(commandTimeout / 2):
		t.Error("Renew goes on though its context has ended")
	}
}

// An attempt whose caller leaves before there is a connection for it is not sent.
func TestAbandonedAttemptsAreNotSent(t *testing.T) {
	t.Parallel()
	l := newProxied(t, false)
	acked(t, l.Driver, 3*commandTimeout/4) // attempts could wait longer than that for a connection
	attempt := func(ctx context.Context, key string) {
		_, _ = l.Acquire(ctx, driver.Request{Claim: claimOf(key)})
	}
	keys := func(pattern string) int { return len(l.direct.Keys(t.Context(), pattern).Val()) }
	var busy, left sync.WaitGroup
	for i := range redisconn.ReplicaPool {
		busy.Go(func() { attempt(t.Context(), fmt.Sprint("busy", i)) })
	}
	require.Eventually(t, func() bool { return keys("busy*") == redisconn.ReplicaPool }, soon, time.Millisecond, "all connections wait for a replica")
	for i := range redisconn.ReplicaPool {
		left.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			attempt(ctx, fmt.Sprint("left", i))
		})
	}
	left.Wait()
	busy.Wait() // the connections are free
	require.NoError(t, l.direct.Ping(t.Context()).Err())
	attempt(t.Context(), "later")
	require.Equal(t, 1, keys("later"))
	require.Zero(t, keys("left*"))
}

// Leases of a slot that moves are granted and renewed where their keys are, and those beside them too;
// a node whose replica is away takes no time of another node's.
func TestAcksOnACluster(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3, 1)
	d, err := NewDriver(c.Client(t), toy)
	require.NoError(t, err)
	defer d.Close()
	acked(t, d, time.Second)
	// on finds a key on a shard's master, of a slot that none of others has.
	on := func(shard int, others ...driver.Claim) driver.Claim {
		for i := 0; ; i++ {
			k := claimOf(fmt.Sprint("k", i))
			taken := false
			for _, o := range others {
				taken = taken || redisconn.Slot(o.Key) == redisconn.Slot(k.Key)
			}
			if !taken && c.ShardOf(t, k.Key) == shard {
				require.NoError(t, c.Client(t).Set(t.Context(), k.Key, k.ID, time.Minute).Err())
				return k
			}
		}
	}
	moves := on(0)
	stays := on(0, moves)
	m := c.StartMove(t, redisconn.Slot(moves.Key), 1)
	m.MoveKeys(t)
	for range 3 {
		require.Equal(t, []error{nil, nil}, renewed(t.Context(), d, moves, stays), "while a slot moves")
		answer, err := d.Acquire(t.Context(), driver.Request{Claim: moves})
		require.NoError(t, err, "while a slot moves")
		require.True(t, answer.Granted)
	}
	m.Finish(t)
	require.Eventually(t, func() bool { return renewed(t.Context(), d, moves)[0] == nil }, soon, 10*time.Millisecond, "after the move")

	other := on(2, moves, stays)
	c.StopReplication(t, 0)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	errs := renewed(ctx, d, stays, other)
	require.Error(t, errs[0], "its replica is away")
	require.NoError(t, errs[1], "its replica has confirmed it")

	d.acks.close()
	d.acks = replicaAcks{n: 1, timeout: time.Hour}.on(d.conn)
	waits, end := context.WithCancel(t.Context())
	defer begun(waits, d, "{"+stays.Key+"}").Wait()
	defer end()
	master := c.Master(t, 0).Client(t)
	require.Eventually(t, func() bool { return waiting(t, master) == redisconn.ReplicaPool }, soon, time.Millisecond)
	beside, stop := context.WithTimeout(t.Context(), soon)
	defer stop()
	require.NoError(t, attempt(beside, d, other.Key), "attempts on one node keep no slot of another node")
}

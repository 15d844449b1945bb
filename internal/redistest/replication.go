package redistest

import (
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"
)

// Sync waits until the replicas of a shard have what its master has now.
func (c *Cluster) Sync(tb testing.TB, shard int) {
	tb.Helper()
	synced(tb, c.admins[c.master(tb, shard)], len(c.Replicas(tb, shard)))
}

// Sync waits until the replicas have what the master has now.
func (s *Sentinel) Sync(tb testing.TB) {
	tb.Helper()
	synced(tb, s.dataAdmin[s.master(tb)], len(s.Replicas(tb)))
}

// StopReplication keeps what is written from now on from the replicas of a shard.
// They are paused until KillMaster promotes one of them.
func (c *Cluster) StopReplication(tb testing.TB, shard int) {
	tb.Helper()
	c.changed.Store(true)
	stopReplication(tb, c.admins[c.master(tb, shard)], c.Replicas(tb, shard))
}

// StopReplication keeps what is written from now on from the replicas. They are
// paused until KillMaster has one of them promoted.
func (s *Sentinel) StopReplication(tb testing.TB) {
	tb.Helper()
	s.changed.Store(true)
	stopReplication(tb, s.dataAdmin[s.master(tb)], s.Replicas(tb))
}

func stopReplication(tb testing.TB, master *redis.Client, replicas []*Server) {
	tb.Helper()
	for _, r := range replicas {
		r.Pause()
	}
	// Else they would find it in their sockets when they run on.
	if err := master.ClientKillByFilter(tb.Context(), "TYPE", "replica").Err(); err != nil {
		tb.Fatalf("redistest: %v", err)
	}
}

func resume(paused []*Server) {
	for _, s := range paused {
		s.Resume()
	}
}

func synced(tb testing.TB, master *redis.Client, replicas int) {
	tb.Helper()
	conn := master.Conn()
	defer conn.Close()
	ctx := tb.Context()
	// WAIT is about what its connection has seen.
	err := conn.Ping(ctx).Err()
	if err == nil {
		var n int64
		n, err = conn.Wait(ctx, replicas, settleTimeout).Result()
		if err == nil && int(n) < replicas {
			err = fmt.Errorf("%d of them have, after %v", n, settleTimeout)
		}
	}
	if err != nil {
		tb.Fatalf("redistest: %d replicas should have what their master has: %v", replicas, err)
	}
}

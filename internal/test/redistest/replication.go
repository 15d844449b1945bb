package redistest

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

// Sync waits until the replicas of a shard have what its master has now.
func (c *Cluster) Sync(tb testing.TB, shard int) {
	tb.Helper()
	synced(tb, c.admins[c.master(tb, shard)], c.Replicas(tb, shard))
}

// Sync waits until the replicas have what the master has now.
func (s *Sentinel) Sync(tb testing.TB) {
	tb.Helper()
	synced(tb, s.dataAdmin[s.master(tb)], s.Replicas(tb))
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

// synced waits until replicas have what their master has now. (Not by WAIT: since Redis 7.4
// it is about what its own connection has written.)
func synced(tb testing.TB, master *redis.Client, replicas []*Server) {
	tb.Helper()
	has, err := replicationField(tb.Context(), master, "master_repl_offset")
	for i := 0; i < len(replicas) && err == nil; i++ {
		admin := replicas[i].admin()
		err = until("a replica has what its master has", func(ctx context.Context) error {
			got, err := replicationField(ctx, admin, "slave_repl_offset")
			if err == nil && got < has {
				err = fmt.Errorf("it is at %d, the master at %d", got, has)
			}
			return errors.Join(err, follows(ctx, admin))
		})
		_ = admin.Close()
	}
	if err != nil {
		tb.Fatalf("redistest: %v", err)
	}
}

func replicationField(ctx context.Context, c *redis.Client, name string) (int64, error) {
	info, err := c.Info(ctx, "replication").Result()
	if err != nil {
		return 0, err
	}
	_, value, found := strings.Cut(info, name+":")
	if value, _, _ = strings.Cut(value, "\r"); !found {
		return 0, fmt.Errorf("no %s in\n%s", name, info)
	}
	return strconv.ParseInt(value, 10, 64)
}

//go:build unix

package redistest_test

import (
	"context"
	"errors"
	"strings"
	"syscall"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/distlock/locker/internal/test/redistest"
)

// set sets key on rdb, and has checks whether it is there.
func set(t *testing.T, rdb redis.Cmdable, key string) {
	t.Helper()
	if err := rdb.Set(t.Context(), key, "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
}

func has(t *testing.T, rdb redis.Cmdable, key string, want bool) {
	t.Helper()
	n, err := rdb.Exists(t.Context(), key).Result()
	if err != nil || (n == 1) != want {
		t.Fatalf("EXISTS %s = %d, %v; want %t", key, n, err, want)
	}
}

func TestCluster(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3, 1)
	rdb := c.Client(t)
	for _, key := range []string{"a", "b", "c", "{}x", "\x00"} {
		set(t, rdb, key)
		if n := c.MasterOf(t, key).Client(t).Exists(t.Context(), key).Val(); n != 1 {
			t.Errorf("%q is not on the node that MasterOf says", key)
		}
	}
	if len(c.Addrs()) != 6 || c.Shards() != 3 || c.Node(0) != c.Nodes()[0] || len(c.Replicas(t, 0)) != 1 {
		t.Errorf("%d nodes in %d shards, %d replicas of the first", len(c.Addrs()), c.Shards(), len(c.Replicas(t, 0)))
	}

	shard := c.ShardOf(t, "a")
	old := c.Master(t, shard)
	c.Failover(t, shard)
	if c.Master(t, shard) == old || c.Replicas(t, shard)[0] != old {
		t.Errorf("no failover")
	}
	has(t, rdb, "a", true)

	set(t, rdb, "a")
	c.Sync(t, shard)
	c.StopReplication(t, shard)
	set(t, rdb, "lost{a}")
	if dead := c.KillMaster(t, shard); !errors.Is(syscall.Kill(dead.PID(), 0), syscall.ESRCH) {
		t.Errorf("%s is alive", dead.Addr())
	}
	rdb = c.Client(t)
	has(t, rdb, "a", true)
	has(t, rdb, "lost{a}", false)
}

func TestMoveSlot(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 2, 0)
	rdb := c.Client(t)
	set(t, rdb, "{k}moved")
	set(t, rdb, "{k}left")
	slot, from := c.Slot(t, "{k}moved"), c.ShardOf(t, "{k}moved")
	source := c.Master(t, from).Client(t)
	says := func(key, want string) {
		t.Helper()
		err := source.Get(t.Context(), key).Err()
		if want == "" && err != nil || want != "" && (err == nil || !strings.HasPrefix(err.Error(), want)) {
			t.Errorf("GET %s: %v, want %q", key, err, want)
		}
	}
	m := c.StartMove(t, slot, 1-from)
	says("{k}moved", "")
	says("{k}new", "ASK")
	m.MoveKeys(t, "{k}moved")
	says("{k}moved", "ASK")
	says("{k}left", "")
	want := "TRYAGAIN"
	if !redistest.AtLeast(7, 0) {
		want = "ASK"
	}
	if err := source.Exists(t.Context(), "{k}moved", "{k}left").Err(); err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("EXISTS of both: %v, want %s", err, want)
	}
	has(t, rdb, "{k}moved", true)
	m.Finish(t)
	says("{k}moved", "MOVED")
	has(t, rdb, "{k}left", true)
	if c.ShardOf(t, "{k}moved") == from {
		t.Errorf("the slot is where it was")
	}
	c.MoveSlot(t, slot, from)
	says("{k}left", "")
}

func TestSentinel(t *testing.T) {
	t.Parallel()
	s := redistest.StartSentinel(t, 2, 3)
	rdb := s.Client(t)
	set(t, rdb, "a")
	s.Sync(t)
	old := s.Master(t)
	s.Failover(t)
	if s.Master(t) == old || len(s.Replicas(t)) != 2 || len(s.Nodes()) != 3 {
		t.Errorf("no failover")
	}
	rdb = s.Client(t)
	has(t, rdb, "a", true)

	// One of the two still believes that it is a master.
	s.StopReplication(t)
	set(t, rdb, "lost")
	if dead := s.KillMaster(t); !errors.Is(syscall.Kill(dead.PID(), 0), syscall.ESRCH) {
		t.Errorf("%s is alive", dead.Addr())
	}
	rdb = s.Client(t)
	has(t, rdb, "lost", false)
}

func TestBorrowed(t *testing.T) {
	t.Parallel()
	var first, second, third []*redistest.Server
	t.Run("first", func(t *testing.T) {
		c := redistest.BorrowCluster(t, 1, 1)
		first = c.Nodes()
		set(t, c.Client(t), "k")
	})
	t.Run("second", func(t *testing.T) {
		c := redistest.BorrowCluster(t, 1, 1)
		second = c.Nodes()
		has(t, c.Client(t), "k", false)
		c.Failover(t, 0)
	})
	t.Run("third", func(t *testing.T) { third = redistest.BorrowCluster(t, 1, 1).Nodes() })
	if first[0] != second[0] {
		t.Errorf("what was left as it was is not used again")
	}
	if second[0] == third[0] {
		t.Errorf("what was changed is used again")
	}
}

func TestTLS(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, redistest.WithTLS())
	c := redis.NewClient(&redis.Options{Addr: s.TLSAddr(t), TLSConfig: s.TLSConfig(t)})
	defer c.Close()
	set(t, c, "k")
	has(t, s.Client(t), "k", true)
	stranger := s.TLSConfig(t)
	stranger.Certificates = nil
	c = redis.NewClient(&redis.Options{Addr: s.TLSAddr(t), TLSConfig: stranger, MaxRetries: -1, DialerRetries: 1})
	defer c.Close()
	if err := c.Ping(t.Context()).Err(); err == nil {
		t.Error("a client without a certificate was let in")
	}
}

func TestAddUser(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	for range 2 { // the second replaces the first
		s.AddUser(t, "u", "p", "+set", "~mine:*")
	}
	c := redis.NewClient(&redis.Options{Addr: s.Addr(), Username: "u", Password: "p"})
	defer c.Close()
	ctx := context.Background()
	set(t, c, "mine:k")
	for what, err := range map[string]error{
		"a key of another":   c.Set(ctx, "k", "v", 0).Err(),
		"a command not hers": c.Get(ctx, "mine:k").Err(),
	} {
		if err == nil || !strings.HasPrefix(err.Error(), "NOPERM") {
			t.Errorf("%s: %v, want NOPERM", what, err)
		}
	}
}

// Slots that move one after the other, back and forth, all arrive.
func TestManyMoves(t *testing.T) {
	c := redistest.StartCluster(t, 2, 0)
	for slot := range 300 {
		c.MoveSlot(t, slot, 1)
		c.MoveSlot(t, 16383-slot, 0)
	}
}

package zz

import (
	"context"
	"testing"
	"time"

	"github.com/distlock/locker/internal/redistest"
	"github.com/distlock/locker/strategy/setnx"
)

func TestAcks(t *testing.T) {
	c := redistest.StartCluster(t, 3, 1)
	ctx := context.Background()
	rdb := c.Client(t)
	l, _ := setnx.New(rdb, setnx.WithReplicaAcks(1, time.Second))
	le, err := l.Lock(ctx, "k")
	t.Log(err)
	t.Log(le.Unlock(ctx))
	c.MoveSlot(t, c.Slot(t, "k"), (c.ShardOf(t, "k")+1)%3)
	start := time.Now()
	le, err = l.Lock(ctx, "k")
	t.Log(err, time.Since(start))
	t.Log(le.Unlock(ctx))
	c.Failover(t, c.ShardOf(t, "k"))
	start = time.Now()
	le, err = l.Lock(ctx, "k")
	t.Log(err, time.Since(start))
	t.Log(le.Unlock(ctx))
	c.KillMaster(t, c.ShardOf(t, "k"))
	start = time.Now()
	le, err = l.Lock(ctx, "k")
	t.Log(err, time.Since(start))
	l.Close()
}

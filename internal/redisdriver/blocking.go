package redisdriver

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// Blocking is a client for commands that block, apart from all others, so that
// who waits never takes a connection that a release needs.
type Blocking struct {
	rdb     redis.UniversalClient
	slice   time.Duration // for which a command blocks
	longest time.Duration // for which its answer is waited
}

// blockingPool is the most connections it opens to a node.
const blockingPool = 32

// NewBlocking makes the client; nil if the caller's cannot be copied. slice is
// how long one command blocks.
func (d *Driver) NewBlocking(slice time.Duration) *Blocking {
	rdb := d.c.apart(blockingPool, slice)
	if rdb == nil {
		return nil
	}
	return &Blocking{rdb: rdb, slice: slice, longest: slice + d.c.answers()}
}

// most is how many elements Pop takes at once.
const most = 256

// Pop waits for the next element of list and takes it, and if many, others that are
// there. It fails with redis.Nil after a slice. It does not end with ctx: ending a BLPOP
// from here would lose what is pushed in that moment.
func (b *Blocking) Pop(ctx context.Context, list string, many bool) ([]string, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), b.longest)
	defer cancel()
	seconds := strconv.FormatFloat(b.slice.Seconds(), 'f', -1, 64)
	first, more := noRetry{redis.NewCmd(ctx, "blpop", list, seconds)}, redis.NewCmd(ctx, "lpop", list, most)
	routed(first.Cmd, 1)
	routed(more, 1)
	var err error
	if many {
		// One round trip for both. (A server before 6.2 refuses the second.)
		pipe := b.rdb.Pipeline()
		_, _ = pipe.Process(ctx, first), pipe.Process(ctx, more)
		_, _ = pipe.Exec(ctx)
		err = first.Err()
	} else {
		err = b.rdb.Process(ctx, first)
	}
	if err != nil {
		relearn(b.rdb, err)
		if !errors.Is(err, redis.Nil) {
			err = classify(err)
		}
		return nil, err
	}
	v, err := first.StringSlice()
	if err != nil || len(v) != 2 {
		return nil, unexpected(first.Val())
	}
	rest, _ := more.StringSlice()
	return append(v[1:], rest...), nil
}

// Push pushes an empty element, which ends a Pop of list.
func (b *Blocking) Push(ctx context.Context, list string, keep time.Duration) error {
	_, err := b.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		p.RPush(ctx, list, "")
		p.PExpire(ctx, list, keep)
		return nil
	})
	return err
}

// Close closes the connections.
func (b *Blocking) Close() { _ = b.rdb.Close() }

// IsCluster reports whether the keys are spread over a cluster.
func (d *Driver) IsCluster() bool {
	_, ok := d.c.given.(*redis.ClusterClient)
	return ok
}

// Node is the address of the cluster node that has key; "" where there is but one.
func (d *Driver) Node(ctx context.Context, key string) (string, error) {
	if !d.IsCluster() {
		return "", nil
	}
	node, err := d.c.node(ctx, key)
	if err != nil {
		return "", err
	}
	return node.Options().Addr, nil
}
